// One list line per kernel, for every instruction set.
#pragma once

#include "bench/e1_panels/panel_kernels.h"
#include "bench/e1_panels/row_kernel.h"

namespace e1 {

template <class V, template <class, int, int, Kind> class Format, Kind kind, int C,
          template <int> class X>
constexpr auto kRun = multiply<V, Format<V, V::kTogether, C, kind>, V::kTogether, C, X>;

/// Single columns, tiles of four behind pointers, tiles of four side by side.
template <class V, template <class, int, int, Kind> class Format, Kind kind>
constexpr void list(const char* name, Weights weights, Kernel* to) {
  to[0] = {name, weights, kind, 1, Layout::kPointers, kRun<V, Format, kind, 1, BehindPointers>};
  to[1] = {name, weights, kind, 4, Layout::kPointers, kRun<V, Format, kind, 4, BehindPointers>};
  to[2] = {name, weights, kind, 4, Layout::kSideBySide, kRun<V, Format, kind, 4, SideBySide>};
}

struct KernelList {
  Kernel kernels[19];
};

template <class V>
constexpr KernelList list_kernels() {
  KernelList all = {};
  Kernel* k = all.kernels;
  list<V, Q4K, Kind::kA32>("q4_k a32", Weights::kQ4_K, k);
  list<V, Q4K, Kind::kA256>("q4_k a256", Weights::kQ4_K, k + 3);
  list<V, Q4K, Kind::kA256s>("q4_k a256s", Weights::kQ4_K, k + 6);
  list<V, Q80, Kind::kA32>("q8_0 a32", Weights::kQ8_0, k + 9);
  list<V, Q80, Kind::kA256>("q8_0 a256", Weights::kQ8_0, k + 12);
  list<V, Q80, Kind::kA256s>("q8_0 a256s", Weights::kQ8_0, k + 15);
  k[18] = {"iq3_s a256s", Weights::kIQ3_S, Kind::kA256s, 1, Layout::kRows, RowsIq3S<V>::multiply};
  return all;
}

/// Reads all bytes and does next to nothing with them: the ceiling of decode.
template <class V>
int32_t read_all(const std::byte* data, size_t bytes) {
  constexpr size_t kStep = 4 * V::kLanes;
  typename V::I32 sums[4] = {V::set_i32(0), V::set_i32(0), V::set_i32(0), V::set_i32(0)};
  for (size_t i = 0; i + 4 * kStep <= bytes; i += 4 * kStep) {
#pragma GCC unroll 4
    for (size_t n = 0; n < 4; ++n) {
      sums[n] = V::dot_i16(sums[n], V::load(data + i + n * kStep), V::load(data + i + n * kStep));
    }
  }
  return V::reduce_add(V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3])));
}

template <class V>
inline constexpr KernelList kKernels = list_kernels<V>();

template <class V>
Build make_build(const char* name) {
  return {name, kKernels<V>.kernels, read_all<V>};
}

}  // namespace e1
