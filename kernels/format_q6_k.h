// Q6_K: blocks of 256 weights, w = d * scale[k / 16] * (code - 32) with codes of six bits, int8
// scales and d in float16.
//
// Per block, in int32: s = sum over sub-blocks j of 16 of (scale_j * (codes . x)_j) * 2^shift and
// m = sum of scale_j * sum(x)_j, then y = fma(x_scale, d * (s - 32 m), y).
//
// Bounds: |s| <= 63 * 127 * 128 * 256 * 2^3 = 2,097 M < 2^31 = 2,147 M; |s - 32 m| is smaller.
#pragma once

#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "kernels/panels.h"

namespace kernels {

struct FormatQ6_K {
  static constexpr Layout kLayout = Layout::kQ6_K;
  static constexpr int64_t kBlock = kBlockWeights;
  static size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / kBlockWeights * sizeof(Q6_KBlock);
  }

  template <class V>
  struct Sum {
    typename V::F32 value;
  };
  template <class V>
  static Sum<V> empty() {
    return {V::set_f32(0)};
  }
  template <class V>
  static typename V::F32 total(const Sum<V>& sum) {
    return sum.value;
  }

  template <class V, int P, int C>
  [[gnu::always_inline]] static void block(const BlockArgs<V, Sum<V>>& args) {
    const ActivationBlock* x[C];
    typename V::I32 sums[C][P], starts[P][C];
    typename V::F32 d[P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = reinterpret_cast<const ActivationBlock*>(args.x[c]) + args.begin / kBlockWeights;
      for (int p = 0; p < P; ++p) sums[c][p] = V::set_i32(0);
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      d[p] = V::load_f16(args.block + offsetof(Q6_KBlock, d) + args.lane_bytes(p, 2));
      dot_scales<V, C>(args, p, x, starts[p]);
    }
#pragma GCC unroll 1
    for (int j = 0; j < 8; ++j) {
      typename V::I32 scaled[C][P];
      dot_sub_block<V, P, C, false>(args, 2 * j, x, scaled);
      dot_sub_block<V, P, C, true>(args, 2 * j + 1, x, scaled);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto shift = V::splat(&x[c]->shift[j]);
        for (int p = 0; p < P; ++p) {
          sums[c][p] = V::add(sums[c][p], V::shl_lanes(scaled[c][p], shift));
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto whole = V::sub(sums[c][p], V::template shl<5>(starts[p][c]));
        const auto t = V::mul(d[p], V::to_f32(whole));
        auto& sum = args.sums[c][args.part + p].value;
        sum = V::fma(V::splat_f32(&x[c]->scale), t, sum);
      }
    }
  }

 private:
  template <class V>
  [[gnu::always_inline]] static typename V::Bytes load_scales(const BlockArgs<V, Sum<V>>& args,
                                                              int p, int group) {
    return V::load(args.block + offsetof(Q6_KBlock, scales) + 64 * group + args.lane_bytes(p, 4));
  }

  /// m of register p.
  template <class V, int C>
  [[gnu::always_inline]] static void dot_scales(const BlockArgs<V, Sum<V>>& args, int p,
                                                const ActivationBlock* const* x,
                                                typename V::I32* sums) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[c] = V::set_i32(0);
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
      const auto scales = load_scales<V>(args, p, group);
      const auto even = V::even16_signed(scales), odd = V::odd16_signed(scales);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        sums[c] = V::dot_i16(sums[c], even, V::splat(&x[c]->sums_of_16[4 * group]));
        sums[c] = V::dot_i16(sums[c], odd, V::splat(&x[c]->sums_of_16[4 * group + 2]));
      }
    }
  }

  /// The four vectors of six-bit codes of sub-block s.
  template <class V>
  [[gnu::always_inline]] static void read_codes(const std::byte* packed, typename V::Bytes* codes) {
    const auto a = V::load(packed), b = V::load(packed + 64), h = V::load(packed + 128);
    codes[0] = V::or_bytes(V::and_bytes(a, 15), V::and_bytes(V::template shl_bits<4>(h), 0x30));
    codes[1] = V::or_bytes(V::and_bytes(b, 15), V::and_bytes(V::template shl_bits<2>(h), 0x30));
    codes[2] = V::or_bytes(V::and_bytes(V::template shr_bits<4>(a), 15), V::and_bytes(h, 0x30));
    codes[3] = V::or_bytes(V::and_bytes(V::template shr_bits<4>(b), 15),
                           V::and_bytes(V::template shr_bits<2>(h), 0x30));
  }

  /// scale * (codes . x) of sub-block s, written or added to `scaled`.
  template <class V, int P, int C, bool kAdd>
  [[gnu::always_inline]] static void dot_sub_block(const BlockArgs<V, Sum<V>>& args, int s,
                                                   const ActivationBlock* const* x,
                                                   typename V::I32 (*scaled)[P]) {
    const std::byte* packed = args.block + offsetof(Q6_KBlock, codes) + 192 * s;
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      typename V::Bytes codes[4];
      read_codes<V>(packed + args.lane_bytes(p, 4), codes);
      const auto scale = V::scale_of_signed(load_scales<V>(args, p, s / 4), s % 4);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const int8_t* xs = x[c]->x + 16 * s;
        auto dot = V::zero_u6();
        dot = V::template dot_u6<0>(dot, codes[0], V::splat(xs));
        dot = V::template dot_u6<1>(dot, codes[1], V::splat(xs + 4));
        dot = V::template dot_u6<2>(dot, codes[2], V::splat(xs + 8));
        dot = V::template dot_u6<3>(dot, codes[3], V::splat(xs + 12));
        const auto product = V::scale_u6(dot, scale);
        scaled[c][p] = kAdd ? V::add(scaled[c][p], product) : product;
      }
    }
  }
};

}  // namespace kernels
