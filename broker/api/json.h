// JSON as plain data: what clients send, checked, and the only way in from text.
//
// The folder's seam to Boost.JSON, whose incremental parser reads into our own values (json.cc).
// Accepted is exactly RFC 8259 in UTF-8: no comments, no trailing commas, no lone surrogates. Depth
// and count of values are bounded, so no text needs much stack or memory. A key that comes twice in
// one object is refused: peers disagree which of them counts. Numbers are exact as int64 and
// uint64, else the nearest double; one that is not finite is refused. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "broker/api/api_error.h"

namespace broker {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // in the order of the text, keys differ
  using Value = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array,
                             Object>;  // uint64_t: above the range of int64_t

  Json() = default;  // null
  explicit Json(Value value);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_number() const { return number().has_value(); }
  /// nullptr: something else.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }
  /// Any number as the nearest double.
  std::optional<double> number() const;
  /// Numbers without a fraction, also when written as 10.0 or 1e1, in the range of int64_t.
  std::optional<int64_t> integer() const;
  /// The same above the range of int64_t.
  std::optional<uint64_t> large_integer() const;

  /// The member of that key; nullptr if there is none or this is no object.
  const Json* find(std::string_view key) const;

  const Value& value() const { return value_; }

 private:
  Value value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

// Moves members, so not before they are complete.
inline Json::Json(Value value) : value_(std::move(value)) {}

struct JsonLimits {
  int depth_max = 32;                   // of arrays and objects in each other
  size_t values_max = size_t{2} << 20;  // of all kinds together
};

/// Reads one text. Errors: status 400 with what is wrong at which line and column, or with the path
/// of what is refused as param.
std::optional<ApiError> parse_json(std::string_view text, const JsonLimits& limits, Json& out);

/// The value as JSON text without blanks; reads back as the same value.
std::string to_text(const Json& json);

/// A value as messages quote it: short, printable, "an array", "an object".
std::string describe(const Json& json);

}  // namespace broker
