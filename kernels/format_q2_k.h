// Q2_K: blocks of 256 weights, w = d * scale[k / 16] * code - dmin * min[k / 16] with codes of two
// bits, scales and mins of four, d and dmin in float16.
//
// value = d * s - dmin * m, where m = sum of min_j * sum(x)_j; |m| <= 15 * 127 * 256 * 2^3.
#pragma once

#include "kernels/blocks_k.h"

namespace kernels {

struct alignas(64) Q2_KBlock {
  uint16_t d[kPanelRows];            // float16 scale of the scales
  uint16_t dmin[kPanelRows];         // float16 scale of the mins
  uint8_t scales[4][kPanelRows][4];  // [16 sub-blocks], mins in the high nibbles
  /// Bits 2 v and 2 v + 1 belong to k = 4 v … of the sub-block.
  uint8_t codes[8][2][kPanelRows][4];
};
static_assert(sizeof(Q2_KBlock) == 16 * 84);

struct Q2_K {
  static constexpr Layout kLayout = Layout::kQ2_K;
  static constexpr TensorType kType = TensorType::kQ2_K;
  static constexpr const char* kName = "q2_k";
  using Block = Q2_KBlock;
  static constexpr int kSubBlock = 16, kCodeMax = 3, kScaleMax = 15;
  template <class V>
  using Dot = DotU4<V>;

  template <class V>
  struct Codes {
    const std::byte* q;
    template <int h>
    [[gnu::always_inline]] void half(typename V::Bytes* w) const {
      const auto four = V::load(q + 64 * h);
      w[0] = V::and_bytes(four, 3);
      w[1] = V::and_bytes(V::template shr_bits<2>(four), 3);
      w[2] = V::and_bytes(V::template shr_bits<4>(four), 3);
      w[3] = V::and_bytes(V::template shr_bits<6>(four), 3);
    }
  };

  template <class V>
  struct Scales {
    typename V::F32 d, dmin;
    const std::byte* scales;

    [[gnu::always_inline]] void read(const Lanes& lanes) {
      d = V::load_f16(lanes.at(offsetof(Block, d), 2));
      dmin = V::load_f16(lanes.at(offsetof(Block, dmin), 2));
      scales = lanes.at(offsetof(Block, scales), 4);
    }
    template <int n>
    [[gnu::always_inline]] typename V::Scale of(int i) const {
      return V::scale_of(V::and_bytes(V::load(scales + 64 * i), 15), n);
    }
    [[gnu::always_inline]] typename V::F32 value(typename V::I32 s,
                                                 const ActivationBlock& x) const {
      auto m = V::set_i32(0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto mins = V::and_bytes(V::template shr_bits<4>(V::load(scales + 64 * i)), 15);
        m = V::dot_i16(m, V::even16(mins), V::splat(&x.sums_of_16[4 * i]));
        m = V::dot_i16(m, V::odd16(mins), V::splat(&x.sums_of_16[4 * i + 2]));
      }
      return V::fnma(dmin, V::to_f32(m), V::mul(d, V::to_f32(s)));
    }
  };

  /// File block: 16 bytes of scales and mins, 64 bytes of codes, float16 d and dmin. Byte l of each
  /// half's 32 holds the codes of weights l, l + 32, l + 64, l + 96 of that half.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    copy_halves(quad, 80, block.d + r);
    copy_halves(quad, 82, block.dmin + r);
    Words words[4];
    load_words(quad, 0, words);
    for (size_t i = 0; i < 4; ++i) store_as(block.scales[i][r], words[i]);
    for (size_t part = 0; part < 4; ++part) {  // 16 bytes, of four sub-blocks
      load_words(quad, 16 + 16 * part, words);
      for (uint32_t q = 0; q < 4; ++q) {
        Words codes = {};
        for (uint32_t v = 0; v < 4; ++v) codes |= (words[v] >> 2 * q & 0x03030303u) << 2 * v;
        store_as(block.codes[4 * (part / 2) + q][part % 2][r], codes);
      }
    }
  }
};
using FormatQ2_K = FormatK<Q2_K>;

}  // namespace kernels
