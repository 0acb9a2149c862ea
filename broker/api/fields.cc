#include "broker/api/fields.h"

#include <utility>

#include "base/cat.h"

namespace broker {

const Json* Fields::find(std::string_view key) const {
  const Json* const value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string Fields::path(std::string_view key) const {
  return path_.empty() ? std::string(key) : base::cat(path_, '.', key);
}

void Fields::fail(std::string path, std::string sentence) {
  if (ok()) error_ = ApiError{.message = std::move(sentence), .param = std::move(path)};
}

void Fields::wrong(std::string_view key, std::string_view must) {
  const Json* const value = find(key);
  if (value == nullptr)
    fail(path(key), base::cat(path(key), " is missing; ", must));
  else
    fail(path(key), base::cat(path(key), " is ", describe(*value), "; ", must));
}

void Fields::boolean(std::string_view key, bool& out) {
  const Json* const value = find(key);
  if (value == nullptr) return;
  if (value->boolean() == nullptr) return wrong(key, "it must be true or false");
  out = *value->boolean();
}

void Fields::number(std::string_view key, NumberRange range, float& out) {
  const Json* const value = find(key);
  if (value == nullptr) return;
  const std::optional<double> number = value->number();
  if (!number || !(*number >= range.min && *number <= range.max))
    return wrong(key, base::cat("it must be a number from ", range.min, " to ", range.max));
  out = static_cast<float>(*number);
}

std::optional<int64_t> Fields::integer(std::string_view key, IntegerRange range) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = value->integer();
  if (number && *number >= range.min && *number <= range.max) return number;
  wrong(key, base::cat("it must be an integer from ", range.min, " to ", range.max));
  return std::nullopt;
}

void Fields::text(std::string_view key, std::string& out) {
  const Json* const value = find(key);
  if (value == nullptr) return;
  if (value->string() == nullptr) return wrong(key, "it must be a string");
  out = *value->string();
}

const Json* Fields::object(std::string_view key) {
  const Json* const value = find(key);
  if (value == nullptr || value->object() != nullptr) return value;
  wrong(key, "it must be an object");
  return nullptr;
}

const Json* Fields::array(std::string_view key) {
  const Json* const value = find(key);
  if (value == nullptr || value->array() != nullptr) return value;
  wrong(key, "it must be an array");
  return nullptr;
}

std::string at(std::string_view path, size_t index) {
  return base::cat(path, '[', index, ']');
}

}  // namespace broker
