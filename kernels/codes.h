// How codes lie in vectors of a panel and become bytes: the readers that formats share.
//
// A reader is made with the address of its lanes in the vectors of 32 weights; pair<v>() gives two
// vectors of codes, of the weights low_k(v) … + 3 and high_k(v) … + 3, v = 0 … 3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vocabulary.h"

namespace kernels {

/// Vector v: low nibbles k = 4 v …, high nibbles k = 16 + 4 v …
template <class V>
struct NibbleCodes {
  const std::byte* q;
  static constexpr int low_k(int v) { return 4 * v; }
  static constexpr int high_k(int v) { return 16 + 4 * v; }

  template <int v>
  [[gnu::always_inline]] void pair(typename V::Bytes& low, typename V::Bytes& high) const {
    const auto both = V::load(q + 64 * v);
    low = V::and_bytes(both, 15);
    high = V::and_bytes(V::template shr_bits<4>(both), 15);
  }
};

/// Nibbles that stand for sixteen bytes at Values::kCodes. Values is a template over V, so that its
/// symbol belongs to one instruction set.
template <class V, class Values>
struct TableCodes : NibbleCodes<V> {
  typename V::Table table = V::table16(Values::kCodes);
  [[gnu::always_inline]] explicit TableCodes(const std::byte* q) : NibbleCodes<V>{q} {}

  template <int v>
  [[gnu::always_inline]] void pair(typename V::Bytes& low, typename V::Bytes& high) const {
    NibbleCodes<V>::template pair<v>(low, high);
    low = V::look_up(table, low);
    high = V::look_up(table, high);
  }
};

/// First a vector of fifth bits, then nibbles: bits v and 4 + v belong to the low and high codes of
/// pair v.
template <class V>
struct FiveBitCodes : NibbleCodes<V> {
  typename V::Bytes fifth;
  [[gnu::always_inline]] explicit FiveBitCodes(const std::byte* q)
      : NibbleCodes<V>{q + 64}, fifth(V::load(q)) {}

  template <int v>
  [[gnu::always_inline]] void pair(typename V::Bytes& low, typename V::Bytes& high) const {
    NibbleCodes<V>::template pair<v>(low, high);
    low = V::or_bytes(low, V::and_bytes(V::template shl_bits<4 - v>(fifth), 16));
    high = V::or_bytes(high, V::and_bytes(V::template shr_bits<v>(fifth), 16));
  }
};

/// One code per byte, in the order of k.
template <class V>
struct ByteCodes {
  const std::byte* q;
  static constexpr int low_k(int v) { return 8 * v; }
  static constexpr int high_k(int v) { return 8 * v + 4; }

  template <int v>
  [[gnu::always_inline]] void pair(typename V::Bytes& low, typename V::Bytes& high) const {
    low = V::load(q + 128 * v);
    high = V::load(q + 128 * v + 64);
  }
};

}  // namespace kernels
