// Types with blocks of 32 weights, w = d * code, or d * code + m, with d and m in 16 bits.
//
// Per block j, in whole numbers p = (codes . x)_j and n = sum(x)_j, with the scale of the block of
// activations:
//   y = fma(d * scale, float(p), y)            or, with m:
//   y = fma(scale, fma(m, float(n), d * float(p)), y)
//
// p is exact as float: |code| * 127 * 32 is below 2^20.
//
// A type is a struct with kLayout, kType and
//   kName                  of the layout
//   Group                  a Group32
//   kCodeMin, kCodeMax     of what the codes stand for
//   kOffset                what was added to make a code, and is taken out of the sum again
//   Dot<V>                 from dot_steps.h
//   Codes<V>(q)            reads the codes of a block at q (of its lanes):
//     low_k(v) high_k(v)       the first of the four k of each code of pair v, 0 … 3
//     pair<v>(low, high)       the codes
//   load_field<V>(p)       a d or m
//   pack(quad, b, r, panel)    block b of rows r … r + 3
#pragma once

#include "kernels/activations.h"
#include "kernels/dot_steps.h"
#include "kernels/matmul.h"
#include "kernels/pack_quads.h"

namespace kernels {

/// Two blocks of each row, so that all parts stay 64-byte aligned. If k / 32 is odd, the last group
/// ends after q[0].
///
///   field[0][0] field[0][1] | field[1][0] field[1][1] |   q[0]: kVectors    |   q[1]: kVectors
///     16 x 2      16 x 2    |                         | of 16 rows x 4 bytes |
/// Fields are d, or d and m; vectors hold the codes of a block.
template <int fields, int vectors>
struct alignas(64) Group32 {
  static constexpr int kFields = fields, kVectors = vectors;
  uint16_t field[kFields][2][kPanelRows];
  uint8_t q[2][kVectors][kPanelRows][4];
  static constexpr size_t kHalfBytes = size_t{64} * (kFields + kVectors);

  // Places of block b of row r. The second half of a last group may lie behind the panel, so no
  // member of it is named.
  static uint16_t* field_at(std::byte* panel, size_t b, size_t f, size_t r) {
    std::byte* group = panel + b / 2 * sizeof(Group32);
    return reinterpret_cast<uint16_t*>(group + 64 * f + 32 * (b % 2)) + r;
  }
  static std::byte* codes_at(std::byte* panel, size_t b, size_t r) {
    std::byte* group = panel + b / 2 * sizeof(Group32);
    return group + offsetof(Group32, q) + 64 * kVectors * (b % 2) + 4 * r;
  }
};

template <class Type>
struct Format32 : Type, FloatSum {
  using Group = typename Type::Group;
  static constexpr ActivationFormat kActivations = ActivationFormat::kQ8_32;
  static constexpr int64_t kBlock = kBlockWeights;
  static constexpr int kFetches = 4;
  static constexpr size_t kBlockCodes = sizeof(Group::q) / 2;

  static constexpr size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) / 64 * sizeof(Group);
  }
  static size_t panel_bytes(int64_t k) { return offset(k) + (k % 64 != 0 ? Group::kHalfBytes : 0); }
  /// d[1] of the last group, if there is no q[1].
  static bool has_padding(int64_t k) { return k % 64 != 0; }
  static void pack_panel(const std::byte* rows, int row_count, int64_t k, std::byte* panel) {
    pack_blocks<Type>(rows, row_count, k, panel);
  }

  template <class V, int P, int C>
  [[gnu::always_inline]] static void block(const BlockArgs<V, Sum<V>>& args) {
    const ActivationBlock32* x[C];
    typename V::F32 sums[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      x[c] = reinterpret_cast<const ActivationBlock32*>(args.x[c]) + args.begin / kSubBlockWeights;
      for (int p = 0; p < P; ++p) sums[c][p] = args.sums[c][args.part + p].value;
    }
    const int64_t blocks = args.count / kSubBlockWeights;
    const std::byte* group = args.block;
#pragma GCC unroll 1
    for (int64_t j = 0; j < blocks; j += 2, group += sizeof(Group)) {
      const std::byte* q = group + offsetof(Group, q);
      args.template fetch<C>();
      multiply<V, P, C>(args, group, q, j, x, sums);
      if (j + 1 < blocks) multiply<V, P, C>(args, group + 32, q + kBlockCodes, j + 1, x, sums);
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) args.sums[c][args.part + p].value = sums[c][p];
    }
  }

 private:
  /// One block: its fields at `fields` and 64 bytes later, its codes at q.
  template <class V, int P, int C>
  [[gnu::always_inline]] static void multiply(const BlockArgs<V, Sum<V>>& args,
                                              const std::byte* fields, const std::byte* q,
                                              int64_t j, const ActivationBlock32* const* x,
                                              typename V::F32 (*sums)[P]) {
    using Dot = typename Type::template Dot<V>;
    static_assert(Type::kCodeMax + Type::kOffset <= Dot::code_max(8));
    static_assert(Type::kCodeMin + Type::kOffset >= 0);
    typename V::F32 d[P];
    for (int p = 0; p < P; ++p) {
      d[p] = Type::template load_field<V>(fields + args.lane_bytes(p, 2));
    }
    const int8_t* xs[C];
    typename Dot::Sum dots[C][P];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      xs[c] = x[c][j].x;
      for (int p = 0; p < P; ++p) dots[c][p] = Dot::start(&x[c][j].start);
    }
    dot_block<V, Type, P, C>(q, args, xs, dots);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const auto scale = V::splat_f32(&x[c][j].scale);
      const int32_t x_sum = -(x[c][j].start >> 7);
      for (int p = 0; p < P; ++p) {
        auto whole = Dot::whole(dots[c][p]);
        constexpr int kOffset = Type::kOffset - Dot::kOffset;
        if constexpr (kOffset != 0) whole = V::add(whole, V::set_i32(x_sum * -kOffset));
        auto& sum = sums[c][p];
        if constexpr (Group::kFields == 1) {
          sum = V::fma(V::mul(d[p], scale), V::to_f32(whole), sum);
        } else {
          const auto m = Type::template load_field<V>(fields + 64 + args.lane_bytes(p, 2));
          const auto n = V::set_f32(static_cast<float>(x_sum));
          sum = V::fma(scale, V::fma(m, n, V::mul(d[p], V::to_f32(whole))), sum);
        }
      }
    }
  }
};

}  // namespace kernels
