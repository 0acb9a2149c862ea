#include "model/metadata.h"

#include <cmath>

#include "base/cat.h"

namespace model {

namespace {

base::Error broken(std::string_view key, std::string_view problem) {
  return {base::Code::kBrokenFile, base::cat("metadata key '", key, "' ", problem)};
}

/// What a value is, for messages.
std::string_view kind_name(const Value& value) {
  switch (value.index()) {
    case 0: return "a boolean";
    case 1:
    case 2: return "an integer";
    case 3: return "a floating-point number";
    case 4: return "a string";
    case 5: return "an array of booleans";
    case 6: return "an array of integers";
    case 7: return "an array of floating-point numbers";
    default: return "an array of strings";
  }
}

base::Error wrong_kind(std::string_view key, const Value& value, std::string_view wanted) {
  return broken(key, base::cat("is ", kind_name(value), ", not ", wanted));
}

template <class Number>
base::Error out_of_range(std::string_view key, Number value, int64_t min, int64_t max) {
  return broken(key, base::cat("is ", value, ", not between ", min, " and ", max));
}

base::Result<int64_t> integer_in(std::string_view key, const Value& value, int64_t min,
                                 int64_t max) {
  if (const auto* number = std::get_if<int64_t>(&value)) {
    if (*number < min || *number > max) return out_of_range(key, *number, min, max);
    return *number;
  }
  // The reader keeps a uint64_t only when it does not fit into int64_t.
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    return out_of_range(key, *number, min, max);
  }
  return wrong_kind(key, value, "an integer");
}

}  // namespace

const Value* Metadata::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

base::Result<int64_t> Metadata::integer(std::string_view key, int64_t min, int64_t max) const {
  const Value* value = find(key);
  if (value == nullptr) return broken(key, "is missing");
  return integer_in(key, *value, min, max);
}

base::Result<int64_t> Metadata::integer_or(std::string_view key, int64_t fallback, int64_t min,
                                           int64_t max) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  return integer_in(key, *value, min, max);
}

base::Result<double> Metadata::number(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return broken(key, "is missing");
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* integer = std::get_if<uint64_t>(value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(value);
  if (number == nullptr) return wrong_kind(key, *value, "a number");
  if (!std::isfinite(*number)) return broken(key, base::cat("is ", *number, ", not finite"));
  return *number;
}

base::Result<double> Metadata::number_or(std::string_view key, double fallback) const {
  if (find(key) == nullptr) return fallback;
  return number(key);
}

base::Result<bool> Metadata::boolean_or(std::string_view key, bool fallback) const {
  const Value* value = find(key);
  if (value == nullptr) return fallback;
  if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  // Some converters write flags as integers.
  if (std::holds_alternative<int64_t>(*value)) {
    ASSIGN_OR_RETURN(const int64_t flag, integer_in(key, *value, 0, 1));
    return flag == 1;
  }
  return wrong_kind(key, *value, "a boolean");
}

base::Result<std::string> Metadata::string(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return broken(key, "is missing");
  const auto* text = std::get_if<std::string>(value);
  if (text == nullptr) return wrong_kind(key, *value, "a string");
  return *text;
}

base::Result<std::string> Metadata::string_or(std::string_view key,
                                              std::string_view fallback) const {
  if (find(key) == nullptr) return std::string(fallback);
  return string(key);
}

base::Result<std::vector<int64_t>> Metadata::per_layer(std::string_view key, int64_t layer_count,
                                                       int64_t min, int64_t max) const {
  const Value* value = find(key);
  if (value == nullptr) return broken(key, "is missing");
  const auto length = static_cast<size_t>(layer_count);
  const auto* array = std::get_if<std::vector<int64_t>>(value);
  if (array == nullptr) {
    ASSIGN_OR_RETURN(const int64_t number, integer_in(key, *value, min, max));
    return std::vector<int64_t>(length, number);
  }
  if (array->size() != length) {
    return broken(key, base::cat("has ", array->size(), " entries for ", layer_count, " layers"));
  }
  for (size_t layer = 0; layer < length; ++layer) {
    const int64_t number = (*array)[layer];
    if (number < min || number > max) {
      return broken(
          key, base::cat("is ", number, " for layer ", layer, ", not between ", min, " and ", max));
    }
  }
  return *array;
}

const std::vector<std::string>* Metadata::strings(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
}

const std::vector<int64_t>* Metadata::integers(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
}

const std::vector<double>* Metadata::numbers(std::string_view key) const {
  const Value* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<double>>(value);
}

}  // namespace model
