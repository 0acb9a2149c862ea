// Typed access to the fields of one JSON object from a client.
//
// Every reader leaves its target alone where the field is absent or null, and records the first
// field that is wrong: its path as param and a sentence that says what is there and what must be.
// After an error the other readers go on harmlessly, so callers ask ok() once at the end.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "broker/api/api_error.h"
#include "broker/api/json.h"

namespace broker {

struct NumberRange {
  double min = 0, max = 0;  // both allowed
};
struct IntegerRange {
  int64_t min = 0, max = 0;  // both allowed
};

class Fields {
 public:
  /// `object` and `error` must outlive this. `path` is empty for the body itself. REQUIRES: it is
  /// an object, or no field is found.
  Fields(const Json& object, std::string path, std::optional<ApiError>& error)
      : object_(object), path_(std::move(path)), error_(error) {}

  bool ok() const { return !error_.has_value(); }
  /// nullptr: absent or null.
  const Json* find(std::string_view key) const;
  /// "stream_options.include_usage"
  std::string path(std::string_view key) const;

  void boolean(std::string_view key, bool& out);
  void number(std::string_view key, NumberRange range, float& out);
  std::optional<int64_t> integer(std::string_view key, IntegerRange range);
  void text(std::string_view key, std::string& out);
  /// nullptr: absent, null, or wrong (then ok() is false).
  const Json* object(std::string_view key);
  const Json* array(std::string_view key);

  /// Records "PATH is VALUE; MUST".
  void wrong(std::string_view key, std::string_view must);
  /// Records a whole sentence about a field; `path` as from path(), or deeper.
  void fail(std::string path, std::string sentence);

 private:
  const Json& object_;
  const std::string path_;
  std::optional<ApiError>& error_;
};

/// "path[index]"
std::string at(std::string_view path, size_t index);

}  // namespace broker
