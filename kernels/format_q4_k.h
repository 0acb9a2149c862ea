// Q4_K: blocks of 256 weights, w = d * scale[k / 32] * code - dmin * min[k / 32] with codes of four
// bits, scales and mins of six, d and dmin in float16.
//
// Per block: s = sum over sub-blocks j of (scale_j * (codes . x)_j) * 2^shift_j and
// m = sum of min_j * sum(x)_j in int32, then y = fma(x_scale, fma(-dmin, m, d * s), y).
//
// Bounds: (codes . x)_j at most 15 * 127 * 32; times 63, 2^3 and 8 sub-blocks 245.8 M < 2^31.
#pragma once

#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "kernels/panels.h"

namespace kernels {

struct FormatQ4_K {
  static constexpr Layout kLayout = Layout::kQ4_K;
  static constexpr int64_t kBlock = kBlockWeights;
  static size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / kBlockWeights * sizeof(Q4_KBlock);
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
    Codes<V> codes[P];
    for (int p = 0; p < P; ++p) codes[p] = read_codes<V>(args, p);
    const ActivationBlock* x[C];
    typename V::I32 sums[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = reinterpret_cast<const ActivationBlock*>(args.x[c]) + args.begin / kBlockWeights;
      for (int p = 0; p < P; ++p) sums[c][p] = V::set_i32(0);
    }
#pragma GCC unroll 1
    for (int j = 0; j < 8; ++j) {
      typename V::SumU4 dots[C][P];
      dot_sub_block<V, P, C>(args, j, x, dots);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto shift = V::splat(&x[c]->shift[j]);
        for (int p = 0; p < P; ++p) {
          const auto scaled = V::scale_u4(dots[c][p], codes[p].scales[j]);
          sums[c][p] = V::add(sums[c][p], V::shl_lanes(scaled, shift));
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        auto mins = V::set_i32(0);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          mins = V::dot_i16(mins, codes[p].mins[i], V::splat(&x[c]->sums_of_32[2 * i]));
        }
        auto t = V::mul(codes[p].d, V::to_f32(sums[c][p]));
        t = V::fnma(codes[p].dmin, V::to_f32(mins), t);
        auto& sum = args.sums[c][args.part + p].value;
        sum = V::fma(V::splat_f32(&x[c]->scale), t, sum);
      }
    }
  }

 private:
  /// Scales and mins of kLanes rows, ready for use.
  template <class V>
  struct Codes {
    typename V::Scale scales[8];
    typename V::Bytes mins[4];  // int16 pairs in the order of sums_of_32
    typename V::F32 d, dmin;
  };

  template <class V>
  [[gnu::always_inline]] static Codes<V> read_codes(const BlockArgs<V, Sum<V>>& args, int p) {
    const std::byte* base = args.block + offsetof(Q4_KBlock, codes) + args.lane_bytes(p, 4);
    const auto a = V::load(base), b = V::load(base + 64), c = V::load(base + 128);
    const auto scales_low = V::and_bytes(a, 63), scales_high = V::and_bytes(b, 63);
    const auto mins_low = V::and_bytes(c, 63);
    const auto mins_high = V::or_bytes(V::or_bytes(V::and_bytes(V::template shr_bits<6>(a), 0x03),
                                                   V::and_bytes(V::template shr_bits<4>(b), 0x0c)),
                                       V::and_bytes(V::template shr_bits<2>(c), 0x30));
    Codes<V> codes;
    codes.d = V::load_f16(args.block + offsetof(Q4_KBlock, d) + args.lane_bytes(p, 2));
    codes.dmin = V::load_f16(args.block + offsetof(Q4_KBlock, dmin) + args.lane_bytes(p, 2));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      codes.scales[j] = V::scale_of(scales_low, j);
      codes.scales[j + 4] = V::scale_of(scales_high, j);
    }
    codes.mins[0] = V::even16(mins_low);
    codes.mins[1] = V::odd16(mins_low);
    codes.mins[2] = V::even16(mins_high);
    codes.mins[3] = V::odd16(mins_high);
    return codes;
  }

  /// (codes . x) of sub-block j.
  template <class V, int P, int C>
  [[gnu::always_inline]] static void dot_sub_block(const BlockArgs<V, Sum<V>>& args, int j,
                                                   const ActivationBlock* const* x,
                                                   typename V::SumU4 (*dots)[P]) {
    const std::byte* q = args.block + offsetof(Q4_KBlock, q) + 256 * j;
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) dots[c][p] = V::zero_u4();
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      typename V::Bytes low[P], high[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        const auto nibbles = V::load(q + 64 * v + args.lane_bytes(p, 4));
        low[p] = V::and_bytes(nibbles, 15);
        high[p] = V::and_bytes(V::template shr_bits<4>(nibbles), 15);
      }
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto xv = V::splat(&x[c]->x[32 * j + 4 * v]);
        for (int p = 0; p < P; ++p) dots[c][p] = V::dot_u4(dots[c][p], low[p], xv);
      }
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto xv = V::splat(&x[c]->x[32 * j + 16 + 4 * v]);
        for (int p = 0; p < P; ++p) dots[c][p] = V::dot_u4(dots[c][p], high[p], xv);
      }
    }
  }
};

}  // namespace kernels
