// cat(a, b, …): one string from strings, numbers and characters.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

namespace base {

namespace internal {

inline void append(std::string& out, std::string_view text) {
  out += text;
}
inline void append(std::string& out, char c) {
  out += c;
}
// A template, so that pointers to characters do not turn into bool.
template <class Bool>
requires std::is_same_v<Bool, bool>
void append(std::string& out, Bool b) {
  out += b ? "true" : "false";
}

template <class Number>
requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, char> &&
         !std::is_same_v<Number, bool>) void append(std::string& out, Number number) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  out.append(buffer, end);
}

}  // namespace internal

/// Concatenates; floating-point numbers come out in the shortest form that reads back equal.
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (internal::append(out, parts), ...);
  return out;
}

}  // namespace base
