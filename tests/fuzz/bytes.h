// Cuts the bytes of a fuzzer into the values that a target needs; at the end there are zeros.
//
// Every input therefore means something, and a longer one begins like a shorter one. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace fuzz {

class Bytes {
 public:
  /// `data` must outlive this.
  Bytes(const uint8_t* data, size_t size)
      : left_(reinterpret_cast<const char*>(data), data == nullptr ? 0 : size) {}

  bool empty() const { return left_.empty(); }

  /// A number of any value; little-endian in the input.
  template <class Number>
  Number number() {
    Number value{};
    const size_t count = std::min(sizeof value, left_.size());
    if (count > 0) std::memcpy(&value, left_.data(), count);  // of nothing there is no address
    left_.remove_prefix(count);
    return value;
  }
  uint8_t byte() { return number<uint8_t>(); }
  bool flag() { return (byte() & 1) != 0; }
  /// 0 … count - 1. REQUIRES: 1 <= count <= 65536.
  size_t below(size_t count) { return (count > 256 ? number<uint16_t>() : size_t{byte()}) % count; }
  /// One of a list.
  template <class List>
  const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }
  /// Up to 255 bytes; their number comes first.
  std::string text() { return std::string(take(byte())); }
  std::string_view take(size_t count) {
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() { return take(left_.size()); }

 private:
  std::string_view left_;
};

}  // namespace fuzz
