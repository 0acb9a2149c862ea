// The keys that clients may send, and whether one of them was sent.
//
// The comparison takes equally long whatever is wrong with a candidate. Any thread: nothing changes
// after from_text().
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace broker {

class ApiKeys {
 public:
  static constexpr size_t kKeyBytesMax = 256;

  /// No keys: everything is allowed.
  ApiKeys() = default;
  /// One key a line; blank lines and lines that begin with # are skipped, blanks around a key are
  /// not part of it. Errors: kInvalidArgument if there is no key, or one is too long or has
  /// characters that no header can carry; never with the key itself.
  static base::Result<ApiKeys> from_text(std::string_view text);

  bool required() const { return !keys_.empty(); }
  /// Whether an Authorization header has one of the keys: "Bearer KEY".
  bool allow(std::string_view authorization) const;

 private:
  using Key = std::array<char, kKeyBytesMax>;  // filled up with zeros, which no key contains

  std::vector<Key> keys_;
};

}  // namespace broker
