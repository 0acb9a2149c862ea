// MXFP4: blocks of 32 weights, w = 2^(e - 127) * m with m of the float format E2M1 (0, ½, 1, 1½, 2,
// 3, 4, 6 and their negatives) and e a byte: the OCP microscaling format.
//
// Codes are looked up as 2 m + 12, so 0 … 24, and the scale is halved: d = 2^(e - 128), in
// bfloat16, which holds it exactly. It takes a byte more than in the file, and no integer work for
// each block. d * scale is finite for weights below 2^64 and activations below 2^60; beyond, a zero
// times it may be no number.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

struct MXFP4 {
  static constexpr Layout kLayout = Layout::kMXFP4;
  static constexpr TensorType kType = TensorType::kMXFP4;
  static constexpr const char* kName = "mxfp4";
  using Group = Group32<1, 4>;
  static_assert(sizeof(Group) == 16 * 2 * 18);
  static constexpr int kCodeMin = -12, kCodeMax = 12, kOffset = 12;
  template <class V>
  struct Values {
    static constexpr uint8_t kCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                           12, 11, 10, 9,  8,  6,  4,  0};
  };
  template <class V>
  using Dot = DotU6<V>;
  template <class V>
  using Codes = TableCodes<V, Values<V>>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_bf16(p);
  }

  /// File block: exponent e, sixteen bytes of codes as in Q4_0.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    for (size_t i = 0; i < 4; ++i) {
      const auto exponent = static_cast<unsigned>(quad.row[i][0]);
      // The two smallest halved scales are subnormal.
      *Group::field_at(panel, b, 0, r + i) =
          static_cast<uint16_t>(exponent < 2 ? 0x20u << exponent : (exponent - 1) << 7);
    }
    Words words[4];
    load_words(quad, 1, words);
    store_words(words, Group::codes_at(panel, b, r));
  }
};
using FormatMXFP4 = Format32<MXFP4>;

}  // namespace kernels
