#include "broker/api/json.h"

#include <algorithm>
#include <boost/json/basic_parser.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>

#include "base/cat.h"
#include "broker/api/json_writer.h"
#include "model/printable.h"

namespace broker {

namespace {

using ErrorCode = boost::json::error_code;
using View = boost::json::string_view;

/// Any key that occurs twice; nullptr if there is none.
const std::string* repeated_key(const Json::Object& object) {
  std::vector<const std::string*> keys;
  keys.reserve(object.size());
  for (const Json::Member& member : object) keys.push_back(&member.key);
  const auto less = [](const std::string* a, const std::string* b) { return *a < *b; };
  std::sort(keys.begin(), keys.end(), less);
  const auto same = [](const std::string* a, const std::string* b) { return *a == *b; };
  const auto found = std::adjacent_find(keys.begin(), keys.end(), same);
  return found == keys.end() ? nullptr : *found;
}

/// Builds values from the parser's events.
class Builder {
 public:
  static constexpr size_t max_array_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_string_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_key_size = std::numeric_limits<size_t>::max();

  Builder(const JsonLimits& limits, Json& root) : limits_(limits), root_(root) {}

  /// What this refused, in words; empty if the parser itself did.
  const std::string& refusal() const { return refusal_; }
  /// Path of the value that was under way: "messages[1].content".
  std::string path() const;

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode& error) { return open(Json(Json::Value(Json::Object{})), error); }
  bool on_object_end(size_t, ErrorCode& error);
  bool on_array_begin(ErrorCode& error) { return open(Json(Json::Value(Json::Array{})), error); }
  bool on_array_end(size_t, ErrorCode&) {
    open_.pop_back();
    return true;
  }
  bool on_key_part(View part, size_t, ErrorCode&) { return append(part); }
  bool on_key(View part, size_t, ErrorCode&) {
    append(part);
    open_.back()->object()->push_back({std::move(text_), Json()});
    text_.clear();
    return true;
  }
  bool on_string_part(View part, size_t, ErrorCode&) { return append(part); }
  bool on_string(View part, size_t, ErrorCode& error) {
    append(part);
    Json value{Json::Value(std::move(text_))};
    text_.clear();
    return add(std::move(value), error) != nullptr;
  }
  bool on_number_part(View part, ErrorCode&) { return append(part); }
  bool on_int64(int64_t number, View, ErrorCode& error) { return add_number(Json(number), error); }
  bool on_uint64(uint64_t number, View, ErrorCode& error) {
    if (number <= uint64_t{std::numeric_limits<int64_t>::max()})
      return add_number(Json(static_cast<int64_t>(number)), error);
    return add_number(Json(number), error);
  }
  bool on_double(double rough, View part, ErrorCode& error);
  bool on_bool(bool value, ErrorCode& error) { return add(Json(value), error) != nullptr; }
  bool on_null(ErrorCode& error) { return add(Json(), error) != nullptr; }
  bool on_comment_part(View, ErrorCode&) { return true; }
  bool on_comment(View, ErrorCode&) { return true; }

 private:
  bool append(View part) {
    text_.append(part.data(), part.size());
    return true;
  }
  bool refuse(std::string sentence, ErrorCode& error) {
    refusal_ = std::move(sentence);
    error = boost::json::error::syntax;  // any will do: refusal() says more
    return false;
  }
  Json* add(Json value, ErrorCode& error);
  bool add_number(Json value, ErrorCode& error) {
    text_.clear();
    return add(std::move(value), error) != nullptr;
  }
  bool open(Json value, ErrorCode& error) {
    Json* const added = add(std::move(value), error);
    if (added != nullptr) open_.push_back(added);
    return added != nullptr;
  }

  const JsonLimits& limits_;
  Json& root_;
  // Containers from the outermost to the innermost. A container grows only when the ones inside it
  // are closed, so these pointers stay valid.
  std::vector<Json*> open_;
  std::string text_;  // parts of the key, string or number under way
  size_t value_count_ = 0;
  std::string refusal_;
  const std::string* repeated_key_ = nullptr;  // of the innermost object
};

Json* Builder::add(Json value, ErrorCode& error) {
  if (++value_count_ > limits_.values_max) {
    refuse(base::cat("holds more than ", limits_.values_max, " values; send less at a time"),
           error);
    return nullptr;
  }
  if (open_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  if (Json::Array* const array = open_.back()->array()) {
    array->push_back(std::move(value));
    return &array->back();
  }
  Json& place = open_.back()->object()->back().value;
  place = std::move(value);
  return &place;
}

// The parser's own conversion may be off by the last bit; a number must mean the same everywhere.
bool Builder::on_double(double rough, View part, ErrorCode& error) {
  append(part);
  double number = 0;
  const auto result = std::from_chars(text_.data(), text_.data() + text_.size(), number);
  if (result.ec == std::errc::result_out_of_range) number = rough;  // zero or infinite
  if (!std::isfinite(number))
    return refuse(base::cat("holds a number that is too large (", model::printable(text_, 40), ")"),
                  error);
  return add_number(Json(number), error);
}

bool Builder::on_object_end(size_t, ErrorCode& error) {
  repeated_key_ = repeated_key(*open_.back()->object());
  if (repeated_key_ != nullptr)
    return refuse(base::cat("holds the key \"", model::printable(*repeated_key_),
                            "\" twice in one object; send it once"),
                  error);
  open_.pop_back();
  return true;
}

std::string Builder::path() const {
  std::string path;
  for (const Json* const container : open_) {
    if (const Json::Array* const array = container->array()) {
      // The innermost value is not there yet.
      const size_t index = container == open_.back() ? array->size() : array->size() - 1;
      path += base::cat('[', index, ']');
    } else if (!container->object()->empty()) {
      if (!path.empty()) path += '.';
      const bool repeated = container == open_.back() && repeated_key_ != nullptr;
      path += model::printable(repeated ? *repeated_key_ : container->object()->back().key);
    }
  }
  return path;
}

/// "line 1, column 18", counted in bytes from 1.
std::string place(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? position : position - newline - 1;
  return base::cat("line ", std::count(before.begin(), before.end(), '\n') + 1, ", column ",
                   column + 1);
}

std::string in_words(const ErrorCode& error, const JsonLimits& limits) {
  using Kind = boost::json::error;
  if (error == Kind::too_deep)
    return base::cat("is nested deeper than ", limits.depth_max, " levels");
  if (error == Kind::incomplete) return "ends too early";
  if (error == Kind::extra_data) return "goes on after its end";
  return base::cat("is no JSON in UTF-8 (", error.message(), ")");
}

}  // namespace

std::optional<ApiError> parse_json(std::string_view text, const JsonLimits& limits, Json& out) {
  out = Json();
  boost::json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth_max);
  ErrorCode error;
  size_t position = 0;
  boost::json::basic_parser<Builder> parser(options, limits, out);
  try {
    position = parser.write_some(false, text.data(), text.size(), error);
  } catch (const std::exception& failure) {
    return ApiError{.message = base::cat("the body cannot be read as JSON: ", failure.what())};
  }
  if (!error && position < text.size()) error = boost::json::error::extra_data;
  if (!error) return std::nullopt;
  const Builder& builder = parser.handler();
  const bool refused = !builder.refusal().empty();
  return ApiError{
      .message = base::cat("the body ", refused ? builder.refusal() : in_words(error, limits),
                           " at ", place(text, position)),
      .param = builder.path()};
}

std::optional<double> Json::number() const {
  if (const auto* const integer = std::get_if<int64_t>(&value_))
    return static_cast<double>(*integer);
  if (const auto* const large = std::get_if<uint64_t>(&value_)) return static_cast<double>(*large);
  if (const auto* const real = std::get_if<double>(&value_)) return *real;
  return std::nullopt;
}

std::optional<int64_t> Json::integer() const {
  if (const auto* const integer = std::get_if<int64_t>(&value_)) return *integer;
  const auto* const real = std::get_if<double>(&value_);
  // Beyond 2^53 a double does not say which integer was meant.
  if (real == nullptr || std::trunc(*real) != *real || std::abs(*real) > 9007199254740992.0)
    return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<uint64_t> Json::large_integer() const {
  const auto* const large = std::get_if<uint64_t>(&value_);
  return large == nullptr ? std::nullopt : std::optional(*large);
}

const Json* Json::find(std::string_view key) const {
  if (object() == nullptr) return nullptr;
  for (const Member& member : *object())
    if (member.key == key) return &member.value;
  return nullptr;
}

namespace {

void write(const Json& json, JsonWriter& writer) {
  if (const Json::Array* const array = json.array()) {
    writer.begin_array();
    for (const Json& item : *array) write(item, writer);
    writer.end_array();
  } else if (const Json::Object* const object = json.object()) {
    writer.begin_object();
    for (const Json::Member& member : *object) {
      writer.key(member.key);
      write(member.value, writer);
    }
    writer.end_object();
  } else if (json.is_null()) {
    writer.null();
  } else {
    const auto scalar = [&](const auto& value) {
      using Type = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_arithmetic_v<Type> || std::is_same_v<Type, std::string>)
        writer.value(value);
    };
    std::visit(scalar, json.value());
  }
}

}  // namespace

std::string to_text(const Json& json) {
  JsonWriter writer;
  write(json, writer);
  return writer.take();
}

std::string describe(const Json& json) {
  if (json.array() != nullptr) return "an array";
  if (json.object() != nullptr) return "an object";
  if (json.string() != nullptr) return base::cat('"', model::printable(*json.string(), 60), '"');
  return to_text(json);
}

}  // namespace broker
