// Q3_K: blocks of 256 weights, w = d * scale[k / 16] * (code - 4) with codes of three bits, scales
// -32 … 31 and d in float16.
//
// Scales are taken four times as large, because so they are bytes with their sign. Then value =
// d * ((s - 4 m) / 4), where m = sum of scale_j * sum(x)_j, and the division is exact.
#pragma once

#include "kernels/blocks_k.h"

namespace kernels {

struct alignas(64) Q3_KBlock {
  uint16_t d[kPanelRows];  // float16 scale of the scales
  uint16_t zero[kPanelRows];
  /// 16 scales per row. High six bits: scales 0-3, 4-7, 8-11; the low two bits of the three make
  /// scales 12-15.
  uint8_t scales[3][kPanelRows][4];
  /// Words 0 … 7 are the codes of k = 32 j + 4 w …: words 0 and 1, 2 and 3, 4 and 5 in bits 0-2 and
  /// 3-5 of the three vectors. Of word 6 the low two bits are in bits 6-7 of the first vector, of
  /// word 7 in those of the third; their high bits are bits 6 and 7 of the second.
  uint8_t codes[8][3][kPanelRows][4];
};
static_assert(sizeof(Q3_KBlock) == 16 * 110 + 32);

struct Q3_K {
  static constexpr Layout kLayout = Layout::kQ3_K;
  static constexpr TensorType kType = TensorType::kQ3_K;
  static constexpr const char* kName = "q3_k";
  using Block = Q3_KBlock;
  static constexpr int kSubBlock = 16, kCodeMax = 7, kScaleMax = 4 * 32;
  template <class V>
  using Dot = DotU4<V>;

  template <class V>
  struct Codes {
    typename V::Bytes a, b, c;
    [[gnu::always_inline]] explicit Codes(const std::byte* q)
        : a(V::load(q)), b(V::load(q + 64)), c(V::load(q + 128)) {}
    template <int h>
    [[gnu::always_inline]] void half(typename V::Bytes* w) const {
      if constexpr (h == 0) {
        w[0] = V::and_bytes(a, 7);
        w[1] = V::and_bytes(V::template shr_bits<3>(a), 7);
        w[2] = V::and_bytes(b, 7);
        w[3] = V::and_bytes(V::template shr_bits<3>(b), 7);
      } else {
        w[0] = V::and_bytes(c, 7);
        w[1] = V::and_bytes(V::template shr_bits<3>(c), 7);
        w[2] = V::or_bytes(V::and_bytes(V::template shr_bits<6>(a), 3),
                           V::and_bytes(V::template shr_bits<4>(b), 4));
        w[3] = V::or_bytes(V::and_bytes(V::template shr_bits<6>(c), 3),
                           V::and_bytes(V::template shr_bits<5>(b), 4));
      }
    }
  };

  template <class V>
  struct Scales {
    typename V::F32 d;
    typename V::Bytes fours[4];  // int8

    [[gnu::always_inline]] void read(const Lanes& lanes) {
      d = V::load_f16(lanes.at(offsetof(Block, d), 2));
      const std::byte* p = lanes.at(offsetof(Block, scales), 4);
      const auto a = V::load(p), b = V::load(p + 64), c = V::load(p + 128);
      fours[0] = V::and_bytes(a, 0xfc);
      fours[1] = V::and_bytes(b, 0xfc);
      fours[2] = V::and_bytes(c, 0xfc);
      fours[3] = V::or_bytes(V::or_bytes(V::and_bytes(V::template shl_bits<2>(a), 0x0c),
                                         V::and_bytes(V::template shl_bits<4>(b), 0x30)),
                             V::and_bytes(V::template shl_bits<6>(c), 0xc0));
    }
    template <int n>
    [[gnu::always_inline]] typename V::Scale of(int i) const {
      return V::scale_of_signed(fours[i], n);
    }
    [[gnu::always_inline]] typename V::F32 value(typename V::I32 s,
                                                 const ActivationBlock& x) const {
      auto m = V::set_i32(0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        m = V::dot_i16(m, V::even16_signed(fours[i]), V::splat(&x.sums_of_16[4 * i]));
        m = V::dot_i16(m, V::odd16_signed(fours[i]), V::splat(&x.sums_of_16[4 * i + 2]));
      }
      return V::mul(d, V::to_f32(V::template sar<2>(V::sub(s, V::template shl<2>(m)))));
    }
  };

  /// File block: third bits hmask[32], bit j of byte l for weight l of 32 weights j; two-bit codes
  /// as in Q2_K, 64 bytes; 12 bytes of scales, 32 added, of which the low four bits of j are a half
  /// of byte j % 8 and the high two in byte 8 + j % 4; float16 d.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    copy_halves(quad, 108, block.d + r);
    std::memset(block.zero + r, 0, 8);
    pack_scales(quad, block, r);
    Words third[8], low[8], w[8];
    load_words(quad, 0, third);
    load_words(quad, 16, third + 4);
    for (uint32_t half = 0; half < 2; ++half) {
      load_words(quad, 32 + 32 * half, low);
      load_words(quad, 48 + 32 * half, low + 4);
      for (uint32_t n = 0; n < 4; ++n) {
        const uint32_t j = 4 * half + n;
        for (size_t i = 0; i < 8; ++i) {
          w[i] = (low[i] >> 2 * n & 0x03030303u) | (third[i] >> j & 0x01010101u) << 2;
        }
        store_as(block.codes[j][0][r], w[0] | w[1] << 3 | (w[6] & 0x03030303u) << 6);
        store_as(block.codes[j][1][r],
                 w[2] | w[3] << 3 | (w[6] & 0x04040404u) << 4 | (w[7] & 0x04040404u) << 5);
        store_as(block.codes[j][2][r], w[4] | w[5] << 3 | (w[7] & 0x03030303u) << 6);
      }
    }
  }

 private:
  static void pack_scales(const Quad& quad, Block& block, size_t r) {
    const Words low[2] = {load_word(quad, 96), load_word(quad, 100)};
    const Words high = load_word(quad, 104);
    Words scale[4];  // six bits, 32 less than stored: another top bit
    for (uint32_t i = 0; i < 4; ++i) {
      const Words bits = (low[i % 2] >> 4 * (i / 2) & 0x0f0f0f0fu) | (high >> 2 * i & 0x03030303u)
                                                                         << 4;
      scale[i] = bits ^ 0x20202020u;
    }
    for (uint32_t i = 0; i < 3; ++i) {
      store_as(block.scales[i][r], scale[i] << 2 | (scale[3] >> 2 * i & 0x03030303u));
    }
  }
};
using FormatQ3_K = FormatK<Q3_K>;

}  // namespace kernels
