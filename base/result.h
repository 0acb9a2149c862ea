// Result<T>: a value, or an Error with a code and one sentence that says what to do.
//
// For everything that a file, a peer, a user or the machine can get wrong. Our own bugs are CHECKs
// (base/check.h). Nothing here throws.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace base {

enum class Code {
  kInvalidArgument,  // the user's input is wrong
  kBrokenFile,       // a file contradicts itself or its format
  kUnsupported,      // valid, but not something this program knows
  kNotFound,         // no such file, request, id
  kUnavailable,      // not now: busy, loading, no worker
  kNoSpace,          // memory, arena or disk is full
  kPeerLost,         // another process died or stopped answering
  kTimeout,          // a bounded wait ended
  kCancelled,        // somebody asked for it
  kSystem,           // a system call failed
};

/// Name of a code as shown to users and sent over the wire, for example "broken_file".
const char* code_name(Code code);

struct Error {
  Code code = Code::kSystem;
  std::string message;  // one sentence, no trailing newline
};

/// A value or an error. REQUIRES: value() only if ok(), error() only if not.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() {
    CHECK(ok(), "value() of an error: ", message());
    return std::get<0>(state_);
  }
  const T& value() const {
    CHECK(ok(), "value() of an error: ", message());
    return std::get<0>(state_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    CHECK(!ok(), "error() of a value");
    return std::get<1>(state_);
  }

 private:
  std::string message() const { return ok() ? std::string() : std::get<1>(state_).message; }

  std::variant<T, Error> state_;
};

/// Success, or an error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    CHECK(!ok(), "error() of a success");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace base

#define BASE_CONCAT_INNER(a, b) a##b
#define BASE_CONCAT(a, b) BASE_CONCAT_INNER(a, b)

/// Returns the error of `expression` from the enclosing function, if it has one.
#define RETURN_IF_ERROR(expression)                               \
  do {                                                            \
    auto status_or = (expression);                                \
    if (!status_or.ok()) return ::base::Error(status_or.error()); \
  } while (false)

/// Declares or assigns `target` from a Result, or returns its error.
#define ASSIGN_OR_RETURN(target, expression)                      \
  auto BASE_CONCAT(result_, __LINE__) = (expression);             \
  if (!BASE_CONCAT(result_, __LINE__).ok())                       \
    return ::base::Error(BASE_CONCAT(result_, __LINE__).error()); \
  target = std::move(BASE_CONCAT(result_, __LINE__).value())
