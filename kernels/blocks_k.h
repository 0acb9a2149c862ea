// Types with blocks of 256 weights in sub-blocks of 16 or 32, each with a small whole number as its
// scale (and perhaps a minimum): w = d * scale * code - dmin * min, or w = d * scale * (code - n).
//
// Per block, in int32: s = sum over sub-blocks of (scale * (codes . x)) * 2^shift; what is to be
// subtracted, m, follows from sums of x that were made once per column. Then
// y = fma(x_scale, value, y), where the type says what value is, a float made of s and m.
//
// A type is a struct with kLayout, kType and
//   kName                  of the layout
//   Block                  plain data; codes[8] are what Codes reads, scales come first
//   kSubBlock              16 or 32
//   kCodeMax, kScaleMax    the largest |code| and |scale| that are multiplied
//   Dot<V>                 from dot_steps.h
//   Codes<V>(q)            reads the codes of 32 weights at q (of its lanes): pair<v>() as in
//                          codes.h; or for sub-blocks of 16 half<h>(w), the four vectors
//                          from k = 16 h on
//   Scales<V>              read(lanes); of(j), that of sub-block j, or for sub-blocks of 16
//                          of<n>(i), that of sub-block 4 i + n; value(s, x)
//   pack(quad, b, r, panel)    block b of rows r … r + 3
#pragma once

#include "kernels/activations.h"
#include "kernels/dot_steps.h"
#include "kernels/matmul.h"
#include "kernels/pack_quads.h"

namespace kernels {

/// The lanes of one register in a block of a panel.
struct Lanes {
  const std::byte* block;
  size_t first;
  /// From a vector at `offset` with so many bytes for each row.
  const std::byte* at(size_t offset, size_t bytes) const { return block + offset + first * bytes; }
};

template <class Type>
struct FormatK : Type, FloatSum {
  using Block = typename Type::Block;
  static constexpr ActivationFormat kActivations = ActivationFormat::kQ8;
  static constexpr int64_t kBlock = kBlockWeights;
  static constexpr int kFetches = Type::kSubBlock == 32 ? 2 : 4;

  static constexpr size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / kBlockWeights * sizeof(Block);
  }
  static size_t panel_bytes(int64_t k) { return offset(k); }
  static bool has_padding(int64_t) { return false; }  // pack() writes what there is
  static void pack_panel(const std::byte* rows, int row_count, int64_t k, std::byte* panel) {
    pack_blocks<Type>(rows, row_count, k, panel);
  }

  template <class V, int P, int C>
  [[gnu::always_inline]] static void block(const BlockArgs<V, Sum<V>>& args) {
    static_assert(int64_t{Type::kCodeMax} * kActivationMax * kBlockWeights * Type::kScaleMax * 8 <=
                  INT32_MAX);
    const ActivationBlock* x[C];
    typename V::I32 sums[C][P];
    typename Type::template Scales<V> scales[P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = reinterpret_cast<const ActivationBlock*>(args.x[c]) + args.begin / kBlockWeights;
      for (int p = 0; p < P; ++p) sums[c][p] = V::set_i32(0);
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) scales[p].read({args.block, args.lane_bytes(p, 1)});
    // What is to be fetched is not looked at in the inner loop: it would take the registers of x.
    constexpr int kStep = C == 1 ? 8 : 8 / kFetches;
#pragma GCC unroll 1
    for (int first = 0; first < 8; first += kStep) {
      args.template fetch<C>();
      if constexpr (Type::kSubBlock == 32) {
#pragma GCC unroll 1
        for (int j = first; j < first + kStep; ++j)
          multiply_one<V, P, C, 0>(args, j, scales, x, sums);
      } else {
#pragma GCC unroll 1
        for (int j = first; j < first + kStep; j += 2) {
          multiply_one<V, P, C, 0>(args, j, scales, x, sums);
          multiply_one<V, P, C, 1>(args, j + 1, scales, x, sums);
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        auto& sum = args.sums[c][args.part + p].value;
        sum = V::fma(V::splat_f32(&x[c]->scale), scales[p].value(sums[c][p], *x[c]), sum);
      }
    }
  }

 private:
  /// Adds 32 weights, those of j, to the sums.
  template <class V, int P, int C, int odd, class Scales>
  [[gnu::always_inline]] static void multiply_one(const BlockArgs<V, Sum<V>>& args, int j,
                                                  const Scales* scales,
                                                  const ActivationBlock* const* x,
                                                  typename V::I32 (*sums)[P]) {
    typename V::I32 scaled[C][P];
    const size_t offset = offsetof(Block, codes) + sizeof(Block::codes[0]) * size_t(j);
    if constexpr (Type::kSubBlock == 32) {
      multiply_32<V, P, C>(args, offset, j, scales, x, scaled);
    } else {
      multiply_half<V, P, C, 0, odd>(args, offset, j, scales, x, scaled);
      multiply_half<V, P, C, 1, odd>(args, offset, j, scales, x, scaled);
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const auto shift = V::splat(&x[c]->shift[j]);
      for (int p = 0; p < P; ++p) {
        sums[c][p] = V::add(sums[c][p], V::shl_lanes(scaled[c][p], shift));
      }
    }
  }

  /// scale * (codes . x) of 32 weights with one scale.
  template <class V, int P, int C, class Scales>
  [[gnu::always_inline]] static void multiply_32(const BlockArgs<V, Sum<V>>& args, size_t offset,
                                                 int j, const Scales* scales,
                                                 const ActivationBlock* const* x,
                                                 typename V::I32 (*scaled)[P]) {
    using Dot = typename Type::template Dot<V>;
    static_assert(Type::kCodeMax <= Dot::code_max(8));
    const int8_t* xs[C];
    typename Dot::Sum dots[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      xs[c] = x[c]->x + 32 * j;
      for (int p = 0; p < P; ++p) dots[c][p] = Dot::start(&x[c]->starts[j]);
    }
    dot_block<V, Type, P, C>(args.block + offset, args, xs, dots);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) scaled[c][p] = Dot::scaled(dots[c][p], scales[p].of(j));
    }
  }

  /// The same of half h with a scale of its own, which is written or added.
  template <class V, int P, int C, int h, int odd, class Scales>
  [[gnu::always_inline]] static void multiply_half(const BlockArgs<V, Sum<V>>& args, size_t offset,
                                                   int j, const Scales* scales,
                                                   const ActivationBlock* const* x,
                                                   typename V::I32 (*scaled)[P]) {
    using Dot = typename Type::template Dot<V>;
    static_assert(Type::kCodeMax <= Dot::code_max(4) && Dot::kOffset == 0);
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      typename V::Bytes w[4];
      const std::byte* q = args.block + offset + args.lane_bytes(p, 4);
      typename Type::template Codes<V>(q).template half<h>(w);
      const auto scale = scales[p].template of<2 * odd + h>(j / 2);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const int8_t* xs = x[c]->x + 32 * j + 16 * h;
        auto dot = Dot::start(nullptr);
        dot = Dot::template step<0>(dot, w[0], V::splat(xs));
        dot = Dot::template step<1>(dot, w[1], V::splat(xs + 4));
        dot = Dot::template step<0>(dot, w[2], V::splat(xs + 8));
        dot = Dot::template step<1>(dot, w[3], V::splat(xs + 12));
        const auto product = Dot::scaled(dot, scale);
        scaled[c][p] = h == 0 ? product : V::add(scaled[c][p], product);
      }
    }
  }
};

}  // namespace kernels
