// Keys and values in q8_0 (kv_type.h), once for all instruction sets.
//
// Score: in each group of 32 dimensions a chain of fma of q and code, which begins with 0; then a
// chain over the groups of fma of that and the scale, which begins with 0. Output: chain of fma
// over the positions of (weight * scale, rounded) and code. So a scale costs one operation for 16
// positions, and a code as many as an f16 does.
#pragma once

#include "kernels/half.h"
#include "kernels/kv_tile.h"
#include "kernels/lanes16.h"

namespace kernels {

template <class V>
struct KvQ8_0 {
  using L = Lanes16<V>;
  static constexpr int kPositions = base::kKvBlockPositions;

  static void store_k(const float* k, int head_dim, int slot, std::byte* block) {
    for (int i = 0; i < head_dim; i += kKvGroup, k += kKvGroup, block += kKvGroupBytes) {
      int8_t codes[kKvGroup];
      const int dims = dims_from(i, head_dim);
      store_scale(quantise(k, dims, codes), dims, slot, block);
      for (int n = 0; n < dims; ++n) std::memcpy(block + n * kPositions + slot, codes + n, 1);
    }
  }

  static void store_v(const float* v, int value_dim, int slot, std::byte* block) {
    for (int i = 0; i < value_dim; i += kKvGroup, v += kKvGroup, block += kKvGroupBytes) {
      int8_t codes[kKvGroup];
      const int dims = dims_from(i, value_dim);
      store_scale(quantise(v, dims, codes), dims, slot, block);
      std::memcpy(block + slot * dims, codes, static_cast<size_t>(dims));
    }
  }

  /// Scores of all positions, scaled.
  template <int Q>
  static void scores(const KvTile<V, Q>& tile, const std::byte* k, float (*out)[kPositions]) {
    constexpr int G = kKvGroups<V, Q>;
    for (int position = 0; position < kPositions; position += 16 * G) {
      L sums[Q][G];
      clear_sums<V>(sums);
      add_groups(tile, k, position, sums);
      tile.store_scores(sums, position, out);
    }
  }

  /// sums += weights V of 16 G dimensions from `first` on, a multiple of 16 G. G is 1, or whole
  /// groups.
  template <int Q, int G>
  [[gnu::always_inline]] static void add_values(const KvTile<V, Q>& tile, const std::byte* v,
                                                const float (*weights)[kPositions], int first,
                                                L (&sums)[Q][G]) {
    static_assert(G == 1 || G % 2 == 0);
    constexpr int kGroups = (G + 1) / 2;
    Values groups[kGroups];
    float scaled[Q][kGroups][kPositions];
#pragma GCC unroll 2
    for (int n = 0; n < kGroups; ++n) {
      groups[n] = values_from(v, tile.row_dim, first + kKvGroup * n);
      for (int q = 0; q < Q; ++q) groups[n].scale(weights[q], scaled[q][n]);
    }
    const int dims = tile.value_dim - first;
    tile.each_position([&](int i, auto some) {
      L values[G];
#pragma GCC unroll 4
      for (int n = 0; n < G; ++n) {
        const std::byte* codes = groups[n / 2].codes + i * groups[n / 2].stride + n % 2 * 16;
        values[n] = G == 1 ? L::template load_kv<KvType::kQ8_0>(codes, dims)
                           : L::template load_kv<KvType::kQ8_0>(codes);
      }
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        if (some && !tile.counts(q, i)) continue;
#pragma GCC unroll 4
        for (int n = 0; n < G; ++n) {
          sums[q][n] = fma(L::set(scaled[q][n / 2][i]), values[n], sums[q][n]);
        }
      }
    });
  }

 private:
  /// sums += q K of G times 16 positions from `position` on.
  template <int Q, int G>
  [[gnu::always_inline]] static void add_groups(const KvTile<V, Q>& tile, const std::byte* k,
                                                int position, L (&sums)[Q][G]) {
    for (int first = 0; first < tile.head_dim; first += kKvGroup, k += kKvGroupBytes) {
      const int dims = dims_from(first, tile.head_dim);
      const std::byte* codes = k + position;
      L parts[Q][G];
      clear_sums<V>(parts);
      for (int i = first; i < first + dims; ++i, codes += kPositions) {
        L keys[G];
#pragma GCC unroll 4
        for (int n = 0; n < G; ++n) keys[n] = L::template load_kv<KvType::kQ8_0>(codes + 16 * n);
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) {
          const L element = L::set(tile.query[q]->q[i]);
#pragma GCC unroll 4
          for (int n = 0; n < G; ++n) parts[q][n] = fma(element, keys[n], parts[q][n]);
        }
      }
      const std::byte* scales = k + dims * kPositions + position * 2;
#pragma GCC unroll 4
      for (int n = 0; n < G; ++n) {
        const L scale = L::template load_kv<KvType::kF16>(scales + 16 * n * 2);
#pragma GCC unroll 4
        for (int q = 0; q < Q; ++q) sums[q][n] = fma(parts[q][n], scale, sums[q][n]);
      }
    }
  }

  /// One group of values of a block, from one dimension on.
  struct Values {
    const std::byte* codes;   // of the first position
    int stride;               // from position to position
    const std::byte* scales;  // f16 [kPositions]

    /// Weights of all positions, times the scales.
    void scale(const float* weights, float* scaled) const {
      for (int i = 0; i < kPositions; i += 16) {
        const L factor = L::template load_kv<KvType::kF16>(scales + i * 2);
        (L::load(weights + i) * factor).store(scaled + i);
      }
    }
  };
  static Values values_from(const std::byte* v, int row_dim, int first) {
    const int begin = first / kKvGroup * kKvGroup, stride = dims_from(begin, row_dim);
    const std::byte* group = v + static_cast<size_t>(begin / kKvGroup) * kKvGroupBytes;
    return {group + first % kKvGroup, stride, group + stride * kPositions};
  }

  /// Of the group that begins with dimension `first`.
  static int dims_from(int first, int all) {
    return all - first < kKvGroup ? all - first : kKvGroup;
  }

  /// Codes of up to 32 elements; their scale.
  static uint16_t quantise(const float* x, int dims, int8_t* codes) {
    const L low = L::load(x, dims, 0);
    const L high = dims > 16 ? L::load(x + 16, dims - 16, 0) : L::set(0);
    const int32_t low_bits = low.largest_bits(), high_bits = high.largest_bits();
    const float top = __builtin_bit_cast(float, low_bits > high_bits ? low_bits : high_bits);
    const uint16_t scale = f32_to_f16_clamped(top / 127.0f);
    const float step = f16_to_f32(scale);
    // Where the scale is zero or NaN the codes do not count; they are small numbers all the same.
    const L divisor = L::set(step > 0 ? step : 1.0f);
    const L most = L::set(127), least = L::set(-127);
    max(min(low / divisor, most), least).store_i8(codes);
    max(min(high / divisor, most), least).store_i8(codes + 16);
    return scale;
  }

  static void store_scale(uint16_t scale, int dims, int slot, std::byte* group) {
    std::memcpy(group + dims * kPositions + slot * 2, &scale, 2);
  }
};

}  // namespace kernels
