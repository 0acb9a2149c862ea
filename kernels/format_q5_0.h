// Q5_0: blocks of 32 weights, w = d * (code - 16) with codes of five bits and d in float16.
// Q5_1: w = d * code + m, with m in float16, too.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

/// Fifth bits of a file block, bit k for weight k, as FiveBitCodes reads them: bit n of byte b is
/// that of weight 4 n + b.
inline Words spread_fifth_bits(Words bits) {
  Words out = {};
  for (uint32_t b = 0; b < 4; ++b) {
    Words every_fourth = bits >> b & 0x11111111u;
    every_fourth = (every_fourth | every_fourth >> 3) & 0x03030303u;
    every_fourth = (every_fourth | every_fourth >> 6) & 0x000f000fu;
    every_fourth = (every_fourth | every_fourth >> 12) & 0x000000ffu;
    out |= every_fourth << 8 * b;
  }
  return out;
}

/// What both types share; `fields` is 1 or 2.
template <int fields>
struct Q5Blocks {
  using Group = Group32<fields, 5>;
  static_assert(sizeof(Group) == 16 * 2 * (20 + 2 * fields));
  template <class V>
  using Dot = DotU6<V>;
  template <class V>
  using Codes = FiveBitCodes<V>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_f16(p);
  }

  /// File block: float16 d, Q5_1 float16 m, 32 fifth bits, sixteen bytes of codes as in Q4_0.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    for (size_t f = 0; f < fields; ++f) {
      copy_halves(quad, 2 * f, Group::field_at(panel, b, f, r));
    }
    std::byte* q = Group::codes_at(panel, b, r);
    store_as(q, spread_fifth_bits(load_word(quad, 2 * fields)));
    Words words[4];
    load_words(quad, 2 * fields + 4, words);
    store_words(words, q + 64);
  }
};

struct Q5_0 : Q5Blocks<1> {
  static constexpr Layout kLayout = Layout::kQ5_0;
  static constexpr TensorType kType = TensorType::kQ5_0;
  static constexpr const char* kName = "q5_0";
  static constexpr int kCodeMin = -16, kCodeMax = 15, kOffset = 16;
};
using FormatQ5_0 = Format32<Q5_0>;

struct Q5_1 : Q5Blocks<2> {
  static constexpr Layout kLayout = Layout::kQ5_1;
  static constexpr TensorType kType = TensorType::kQ5_1;
  static constexpr const char* kName = "q5_1";
  static constexpr int kCodeMin = 0, kCodeMax = 31, kOffset = 0;
};
using FormatQ5_1 = Format32<Q5_1>;

}  // namespace kernels
