// Q6_K: blocks of 256 weights, w = d * scale[k / 16] * (code - 32) with codes of six bits, int8
// scales and d in float16.
//
// value = d * (s - 32 m), where m = sum of scale_j * sum(x)_j over sub-blocks of 16. |s| is at most
// 2,097 M, |32 m| at most 1,066 M and their difference smaller than either alone may be.
#pragma once

#include "kernels/blocks_k.h"

namespace kernels {

struct alignas(64) Q6_KBlock {
  uint16_t d[kPanelRows];  // float16 scale of the scales
  uint16_t zero[kPanelRows];
  int8_t scales[4][kPanelRows][4];  // [16 sub-blocks of 16, four to a vector]
  struct {
    /// Low four bits: vector u holds k = 4 u … and 8 + 4 u … of the sub-block.
    uint8_t low[2][kPanelRows][4];
    /// High two bits: bits 2 v and 2 v + 1 belong to k = 4 v … of the sub-block.
    uint8_t high[kPanelRows][4];
  } codes[8][2];  // [sub-blocks of 16]
};
static_assert(sizeof(Q6_KBlock) == 16 * 210 + 32);

struct Q6_K {
  static constexpr Layout kLayout = Layout::kQ6_K;
  static constexpr TensorType kType = TensorType::kQ6_K;
  static constexpr const char* kName = "q6_k";
  using Block = Q6_KBlock;
  static constexpr int kSubBlock = 16, kCodeMax = 63, kScaleMax = 128;
  template <class V>
  using Dot = DotU6<V>;

  template <class V>
  struct Codes {
    const std::byte* q;
    template <int h>
    [[gnu::always_inline]] void half(typename V::Bytes* w) const {
      const std::byte* p = q + 192 * h;
      const auto a = V::load(p), b = V::load(p + 64), high = V::load(p + 128);
      w[0] = V::or_bytes(V::and_bytes(a, 15), V::and_bytes(V::template shl_bits<4>(high), 0x30));
      w[1] = V::or_bytes(V::and_bytes(b, 15), V::and_bytes(V::template shl_bits<2>(high), 0x30));
      w[2] = V::or_bytes(V::and_bytes(V::template shr_bits<4>(a), 15), V::and_bytes(high, 0x30));
      w[3] = V::or_bytes(V::and_bytes(V::template shr_bits<4>(b), 15),
                         V::and_bytes(V::template shr_bits<2>(high), 0x30));
    }
  };

  template <class V>
  struct Scales {
    typename V::F32 d;
    const std::byte* scales;

    [[gnu::always_inline]] void read(const Lanes& lanes) {
      d = V::load_f16(lanes.at(offsetof(Block, d), 2));
      scales = lanes.at(offsetof(Block, scales), 4);
    }
    template <int n>
    [[gnu::always_inline]] typename V::Scale of(int i) const {
      return V::scale_of_signed(V::load(scales + 64 * i), n);
    }
    [[gnu::always_inline]] typename V::F32 value(typename V::I32 s,
                                                 const ActivationBlock& x) const {
      auto m = V::set_i32(0);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto four = V::load(scales + 64 * i);
        m = V::dot_i16(m, V::even16_signed(four), V::splat(&x.sums_of_16[4 * i]));
        m = V::dot_i16(m, V::odd16_signed(four), V::splat(&x.sums_of_16[4 * i + 2]));
      }
      return V::mul(d, V::to_f32(V::sub(s, V::template shl<5>(m))));
    }
  };

  /// File block: low nibbles ql[128], high bits qh[64], int8 scales[16], float16 d. 128 weights
  /// take 64 bytes of ql (weights 64 and more in the high nibbles) and 32 of qh (two bits for each
  /// 32 weights).
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    copy_halves(quad, 208, block.d + r);
    std::memset(block.zero + r, 0, 8);
    Words words[4];
    load_words(quad, 192, words);
    for (size_t i = 0; i < 4; ++i) store_as(block.scales[i][r], words[i]);
    for (uint32_t sub = 0; sub < 16; ++sub) {
      const uint32_t n = 16 * (sub % 8);  // within 128 weights
      Words low[4], high[4];
      load_words(quad, 64 * (sub / 8) + n % 64, low);
      load_words(quad, 128 + 32 * (sub / 8) + n % 32, high);
      Words pairs = {};
      for (uint32_t v = 0; v < 4; ++v) {
        low[v] = low[v] >> n / 64 * 4 & 0x0f0f0f0fu;
        pairs |= (high[v] >> n / 32 * 2 & 0x03030303u) << 2 * v;
      }
      auto& codes = block.codes[sub / 2][sub % 2];
      store_as(codes.low[0][r], low[0] | low[2] << 4);
      store_as(codes.low[1][r], low[1] | low[3] << 4);
      store_as(codes.high[r], pairs);
    }
  }
};
using FormatQ6_K = FormatK<Q6_K>;

}  // namespace kernels
