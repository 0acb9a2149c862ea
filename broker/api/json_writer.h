// JSON text from values, piece by piece.
//
//   JsonWriter json;
//   json.begin_object().field("id", id).key("choices").begin_array().end_array().end_object();
//   send(json.take());
//
// Commas come by themselves. Strings may hold any bytes: what is not UTF-8 becomes U+FFFD. Numbers
// that are not finite become null. The caller keeps begin and end, key and value in pairs. Thread
// rule: one thread at a time.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/cat.h"
#include "model/printable.h"

namespace broker {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    separate();
    text_ += model::json_string(name);
    text_ += ':';
    comma_ = false;
    return *this;
  }
  JsonWriter& value(std::string_view text) { return raw(model::json_string(text)); }
  // A template, so that pointers to characters do not turn into bool.
  template <class Number>
  requires std::is_arithmetic_v<Number> JsonWriter& value(Number number) {
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(number)) return null();
      std::string digits = base::cat(number);
      // What was written with a fraction stays a real number for readers that tell them apart.
      if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
      return raw(digits);
    } else {
      return raw(base::cat(number));
    }
  }
  JsonWriter& null() { return raw("null"); }
  /// `json` is a whole value.
  JsonWriter& raw(std::string_view json) {
    separate();
    text_ += json;
    comma_ = true;
    return *this;
  }
  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).value(text); }
  template <class Number>
  requires std::is_arithmetic_v<Number> JsonWriter& field(std::string_view name, Number number) {
    return key(name).value(number);
  }

  /// What was written; begins anew.
  std::string take() {
    comma_ = false;
    return std::exchange(text_, {});
  }

 private:
  void separate() {
    if (comma_) text_ += ',';
  }
  JsonWriter& open(char bracket) {
    separate();
    text_ += bracket;
    comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    comma_ = true;
    return *this;
  }

  std::string text_;
  bool comma_ = false;  // the next value or key needs one in front
};

}  // namespace broker
