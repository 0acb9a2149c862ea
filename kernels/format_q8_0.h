// Q8_0: blocks of 32 weights, w = d * code with code -128 … 127 and d in float16.
//
// Per block j: y = fma(d_j * scale_j, float((codes . x)_j), y), where scale_j belongs to the block
// of activations.
//
// Bounds: |(codes . x)_j| <= 128 * 127 * 32 is below 2^19: exact as float, too.
#pragma once

#include "kernels/activations.h"
#include "kernels/matmul.h"
#include "kernels/panels.h"

namespace kernels {

struct FormatQ8_0 {
  static constexpr Layout kLayout = Layout::kQ8_0;
  static constexpr int64_t kBlock = kBlockWeights;
  static size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / 64 * sizeof(Q8_0Group);
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
    for (int64_t j = 0; j < sub_blocks; j += 2, group += sizeof(Q8_0Group)) {
      sub_block<V, P, C>(args, group + offsetof(Q8_0Group, q), group, j, x);
      if (j + 1 < sub_blocks) {
        sub_block<V, P, C>(args, group + offsetof(Q8_0Group, q) + 512, group + 32, j + 1, x);
      }
    }
  }

 private:
  /// 32 weights: eight vectors at `codes`, sixteen scales at `d`.
  template <class V, int P, int C>
  [[gnu::always_inline]] static void sub_block(const BlockArgs<V, Sum<V>>& args,
                                               const std::byte* codes, const std::byte* d,
                                               int64_t j, const ActivationBlock32* const* x) {
    typename V::F32 scales[P];
    for (int p = 0; p < P; ++p) scales[p] = V::load_f16(d + args.lane_bytes(p, 2));
    typename V::SumS8 dots[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) dots[c][p] = V::start_s8(&x[c][j].start);
    }
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      typename V::Bytes w[P];
      for (int p = 0; p < P; ++p) w[p] = V::load(codes + 64 * v + args.lane_bytes(p, 4));
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const auto xv = V::splat(&x[c][j].x[4 * v]);
        for (int p = 0; p < P; ++p) dots[c][p] = V::dot_s8(dots[c][p], w[p], xv);
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const auto scale = V::splat_f32(&x[c][j].scale);
      for (int p = 0; p < P; ++p) {
        auto& sum = args.sums[c][args.part + p].value;
        sum = V::fma(V::mul(scales[p], scale), V::to_f32(V::sum_s8(dots[c][p])), sum);
      }
    }
  }
};

}  // namespace kernels
