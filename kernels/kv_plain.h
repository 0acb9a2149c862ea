// Keys and values in f16 and f32, once for all instruction sets. Score: a chain of fma over the
// dimensions. Output: a chain of fma over the positions.
#pragma once

#include "kernels/kv_tile.h"
#include "kernels/lanes16.h"

namespace kernels {

template <class V, KvType type>
struct KvPlain {
  using L = Lanes16<V>;
  static constexpr int kPositions = base::kKvBlockPositions;
  static constexpr int kBytes = L::template kKvBytes<type>;

  static void store_k(const float* k, int head_dim, int slot, std::byte* block) {
    for (int i = 0; i < head_dim; i += 16) {
      std::byte elements[16 * kBytes];
      const int n = store(k + i, head_dim - i, elements);
      for (int d = 0; d < n; ++d) {
        const auto at = static_cast<size_t>((i + d) * kPositions + slot) * kBytes;
        std::memcpy(block + at, elements + d * kBytes, kBytes);
      }
    }
  }

  static void store_v(const float* v, int value_dim, int slot, std::byte* block) {
    std::byte* row = block + static_cast<size_t>(slot) * static_cast<size_t>(value_dim) * kBytes;
    for (int i = 0; i < value_dim; i += 16, row += 16 * kBytes) {
      std::byte elements[16 * kBytes];
      const int n = store(v + i, value_dim - i, elements);
      std::memcpy(row, elements, static_cast<size_t>(n) * kBytes);
    }
  }

  /// Scores of all positions, scaled.
  template <int Q>
  static void scores(const KvTile<V, Q>& tile, const std::byte* k, float (*out)[kPositions]) {
    constexpr int G = kKvGroups<V, Q>;
    for (int first = 0; first < kPositions; first += 16 * G) {
      L sums[Q][G];
      clear_sums<V>(sums);
      const std::byte* row = k + first * kBytes;
      for (int i = 0; i < tile.head_dim; ++i, row += kPositions * kBytes) {
        L keys[G];
#pragma GCC unroll 4
        for (int n = 0; n < G; ++n) keys[n] = L::template load_kv<type>(row + 16 * n * kBytes);
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
          const L element = L::set(tile.query[q]->q[i]);
#pragma GCC unroll 4
          for (int n = 0; n < G; ++n) sums[q][n] = fma(element, keys[n], sums[q][n]);
        }
      }
      tile.store_scores(sums, first, out);
    }
  }

  /// sums += weights V of 16 G dimensions from `first` on, a multiple of 16 G.
  template <int Q, int G>
  [[gnu::always_inline]] static void add_values(const KvTile<V, Q>& tile, const std::byte* v,
                                                const float (*weights)[kPositions], int first,
                                                L (&sums)[Q][G]) {
    const int dims = tile.value_dim - first;
    const size_t row_bytes = static_cast<size_t>(tile.row_dim) * kBytes;
    const std::byte* column = v + static_cast<size_t>(first) * kBytes;
    tile.each_position([&](int i, auto some) {
      const std::byte* row = column + static_cast<size_t>(i) * row_bytes;
      L values[G];
#pragma GCC unroll 4
      for (int n = 0; n < G; ++n) {
        values[n] = G == 1 ? L::template load_kv<type>(row, dims)
                           : L::template load_kv<type>(row + 16 * n * kBytes);
      }
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        if (some && !tile.counts(q, i)) continue;
        const L weight = L::set(weights[q][i]);
#pragma GCC unroll 4
        for (int n = 0; n < G; ++n) sums[q][n] = fma(weight, values[n], sums[q][n]);
      }
    });
  }

 private:
  /// Up to 16 floats as elements; how many.
  static int store(const float* x, int count, std::byte* elements) {
    const int n = count < 16 ? count : 16;
    if constexpr (type == KvType::kF32) {
      std::memcpy(elements, x, static_cast<size_t>(n) * 4);
    } else {
      uint16_t halves[16];
      L::load(x, count, 0).store_f16_clamped(halves);
      std::memcpy(elements, halves, sizeof halves);
    }
    return n;
  }
};

}  // namespace kernels
