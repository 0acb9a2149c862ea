// The dot products of vocabulary.h under one name, for formats that differ in the width of their
// codes only.
//
//   start(s)           an empty sum; s is -128 * sum of x, which signed codes need
//   step<n>(sum, w, x) four products more; n is 0 for the first and 1 for the second code of a pair
//   whole(sum)         the sum, int32
//   scaled(sum, scale) times a scale, int32
//   kOffset            what is added to codes and taken out by the sum itself
//   code_max(steps)    the largest w for which so many steps (half of each n) are exact everywhere
//
// An instruction set without a dot product of bytes adds pairs of products as int16: code_max
// follows from what those hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/vocabulary.h"

namespace kernels {

inline constexpr int kInt16Max = 32767;
/// Largest |x| of a quantised activation.
inline constexpr int kActivationMax = 127;

template <class V>
struct DotU4 {
  using Sum = typename V::SumU4;
  static constexpr int kOffset = 0;
  static constexpr int code_max(int steps) { return kInt16Max / (steps * 2 * kActivationMax); }
  [[gnu::always_inline]] static Sum start(const int32_t*) { return V::zero_u4(); }
  template <int n, class X>
  [[gnu::always_inline]] static Sum step(Sum sum, typename V::Bytes w, X x) {
    return V::dot_u4(sum, w, x);
  }
  [[gnu::always_inline]] static typename V::I32 whole(Sum sum) { return V::sum_u4(sum); }
  [[gnu::always_inline]] static typename V::I32 scaled(Sum sum, typename V::Scale scale) {
    return V::scale_u4(sum, scale);
  }
};

/// Two sums, taken in turns: each of them holds half of the steps.
template <class V>
struct DotU6 {
  using Sum = typename V::SumU6;
  static constexpr int kOffset = 0;
  static constexpr int code_max(int steps) { return kInt16Max / (steps * kActivationMax); }
  [[gnu::always_inline]] static Sum start(const int32_t*) { return V::zero_u6(); }
  template <int n, class X>
  [[gnu::always_inline]] static Sum step(Sum sum, typename V::Bytes w, X x) {
    return V::template dot_u6<n>(sum, w, x);
  }
  [[gnu::always_inline]] static typename V::I32 whole(Sum sum) { return V::sum_u6(sum); }
  [[gnu::always_inline]] static typename V::I32 scaled(Sum sum, typename V::Scale scale) {
    return V::scale_u6(sum, scale);
  }
};

/// Signed bytes.
template <class V>
struct DotS8 {
  using Sum = typename V::SumS8;
  static constexpr int kOffset = 128;
  static constexpr int code_max(int) { return 255; }
  [[gnu::always_inline]] static Sum start(const int32_t* start) { return V::start_s8(start); }
  template <int n, class X>
  [[gnu::always_inline]] static Sum step(Sum sum, typename V::Bytes w, X x) {
    return V::dot_s8(sum, w, x);
  }
  [[gnu::always_inline]] static typename V::I32 whole(Sum sum) { return V::sum_s8(sum); }
  [[gnu::always_inline]] static typename V::I32 scaled(Sum sum, typename V::Scale scale) {
    return V::scale_i32(V::sum_s8(sum), scale);
  }
};

/// Signed bytes from a table: never -128, and with V::kAddedToS7 added instead of 128.
template <class V>
struct DotS7 : DotS8<V> {
  using Sum = typename V::SumS8;
  template <int n, class X>
  [[gnu::always_inline]] static Sum step(Sum sum, typename V::Bytes w, X x) {
    return V::dot_s7(sum, w, x);
  }
};

/// Adds (codes . x) of 32 weights at q to the sums of P registers and C columns: each word of x is
/// brought to all lanes once. x are the columns' elements of these weights.
template <class V, class Type, int P, int C, int v = 0, class Args, class DotSum>
[[gnu::always_inline]] inline void dot_block(const std::byte* q, const Args& args,
                                             const int8_t* const* x, DotSum (*dots)[P]) {
  using Dot = typename Type::template Dot<V>;
  using Codes = typename Type::template Codes<V>;
  typename V::Bytes low[P], high[P];
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    Codes(q + args.lane_bytes(p, 4)).template pair<v>(low[p], high[p]);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const auto word = V::splat(x[c] + Codes::low_k(v));
    for (int p = 0; p < P; ++p) dots[c][p] = Dot::template step<0>(dots[c][p], low[p], word);
  }
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const auto word = V::splat(x[c] + Codes::high_k(v));
    for (int p = 0; p < P; ++p) dots[c][p] = Dot::template step<1>(dots[c][p], high[p], word);
  }
  if constexpr (v < 3) dot_block<V, Type, P, C, v + 1>(q, args, x, dots);
}

/// A running sum that is one float per row: what the drivers of such formats share.
struct FloatSum {
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
};

}  // namespace kernels
