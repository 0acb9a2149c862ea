// MXFP4: blocks of 32 weights, w = 2^(e - 127) * m with m of the float format E2M1 (0, ½, 1, 1½, 2,
// 3, 4, 6 and their negatives) and e a byte: the OCP microscaling format.
//
// Codes are looked up as 2 m + 12, so 0 … 24, the scale is halved, and the twelve are taken out of
// the sum: per block j, y = fma(d_j * scale_j, float((2 m . x)_j), y).
//
// Bounds: four steps of dot_u6 in each of its halves are at most 4 * 2 * 24 * 127 < 2^15;
// |(2 m . x)_j| <= 12 * 127 * 32 is below 2^16: exact as float, too. d_j * scale_j is finite for
// weights below 2^64 and activations below 2^60; beyond, a zero times it may be no number.
#pragma once

#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "kernels/panels.h"

namespace kernels {

struct FormatMXFP4 {
  static constexpr Layout kLayout = Layout::kMXFP4;
  static constexpr int64_t kBlock = kBlockWeights;
  static size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / 64 * sizeof(MXFP4Group);
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
    const ActivationBlock32* x[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = reinterpret_cast<const ActivationBlock32*>(args.x[c]) + args.begin / kSubBlockWeights;
    }
    const int64_t sub_blocks = args.count / kSubBlockWeights;
    const std::byte* group = args.block;
#pragma GCC unroll 1
    for (int64_t j = 0; j < sub_blocks; j += 2, group += sizeof(MXFP4Group)) {
      sub_block<V, P, C>(args, group + offsetof(MXFP4Group, q), group, j, x);
      if (j + 1 < sub_blocks) {
        sub_block<V, P, C>(args, group + offsetof(MXFP4Group, q) + 256, group + 32, j + 1, x);
      }
    }
  }

 private:
  static constexpr int kOffset = 12;

  /// 32 weights: four vectors at `codes`, sixteen scales at `d`.
  template <class V, int P, int C>
  [[gnu::always_inline]] static void sub_block(const BlockArgs<V, Sum<V>>& args,
                                               const std::byte* codes, const std::byte* d,
                                               int64_t j, const ActivationBlock32* const* x) {
    // In here, so that their symbols belong to one instruction set.
    static constexpr uint8_t kCodes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                           12, 11, 10, 9,  8,  6,  4,  0};
    static constexpr uint32_t kOnes = 0x01010101;
    const auto table = V::table16(kCodes);
    typename V::SumU6 dots[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) dots[c][p] = V::zero_u6();
    }
#pragma GCC unroll 8
    for (int v = 0; v < 4; ++v) {
      typename V::Bytes low[P], high[P];
      for (int p = 0; p < P; ++p) {
        const auto both = V::load(codes + 64 * v + args.lane_bytes(p, 4));
        low[p] = V::look_up(table, V::and_bytes(both, 15));
        high[p] = V::look_up(table, V::and_bytes(V::template shr_bits<4>(both), 15));
      }
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto x_low = V::splat(&x[c][j].x[4 * v]), x_high = V::splat(&x[c][j].x[16 + 4 * v]);
        for (int p = 0; p < P; ++p) {
          dots[c][p] = V::template dot_u6<0>(dots[c][p], low[p], x_low);
          dots[c][p] = V::template dot_u6<1>(dots[c][p], high[p], x_high);
        }
      }
    }
    const auto one = V::scale_of(V::splat(&kOnes), 0);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const auto scale = V::splat_f32(&x[c][j].scale);
      const auto offset = V::set_i32(x[c][j].start / 128 * kOffset);  // -12 * sum of x
      for (int p = 0; p < P; ++p) {
        auto& sum = args.sums[c][args.part + p].value;
        const auto dot = V::add(V::scale_u6(dots[c][p], one), offset);
        sum = V::fma(V::mul(V::load_bf16(d + args.lane_bytes(p, 2)), scale), V::to_f32(dot), sum);
      }
    }
  }
};

}  // namespace kernels
