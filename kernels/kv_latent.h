// Keys whose first dimensions are the values, too (a latent), stored once, as values are: a row per
// position. Once for all instruction sets.
//
// Score: lane i adds up the products of the dimensions i, i + 16, … in order; then the lanes meet
// as in lanes16.h. Of q8_0 a key is code * scale, which is exact. Output: as in kv_plain.h and
// kv_q8_0.h.
#pragma once

#include "kernels/kv_plain.h"
#include "kernels/kv_q8_0.h"

namespace kernels {

template <class V, KvType type>
struct KvLatent {
  using L = Lanes16<V>;
  using Values = std::conditional_t<type == KvType::kQ8_0, KvQ8_0<V>, KvPlain<V, type>>;
  static constexpr int kPositions = base::kKvBlockPositions;
  static constexpr int kBytes = L::template kKvBytes<type>;

  /// Scores of all positions, scaled.
  template <int Q>
  static void scores(const KvTile<V, Q>& tile, const std::byte* keys, float (*out)[kPositions]) {
    constexpr int P = kKvGroups<V, Q>;  // positions at a time
    for (int first = 0; first < kPositions; first += P) {
      L sums[Q][P];
      clear_sums<V>(sums);
      add_products(tile, keys, first, sums);
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 4
        for (int n = 0; n < P; ++n) out[q][first + n] = sums[q][n].sum() * tile.query[q]->scale;
      }
    }
  }

  template <int Q, int G>
  [[gnu::always_inline]] static void add_values(const KvTile<V, Q>& tile, const std::byte* keys,
                                                const float (*weights)[kPositions], int first,
                                                L (&sums)[Q][G]) {
    Values::template add_values<Q, G>(tile, keys, weights, first, sums);
  }

 private:
  /// Elements of up to 16 dimensions from `dim` on, of P positions.
  template <int P>
  struct Elements {
    const std::byte* at;  // of the first position
    size_t stride;        // from position to position
    float scales[16];     // q8_0: of the 16 positions around them
    int first;            // of those

    Elements(int row_dim, const std::byte* block, int dim, int position) {
      if constexpr (type == KvType::kQ8_0) {
        const int begin = dim / kKvGroup * kKvGroup;
        const int dims = std::min<int>(kKvGroup, row_dim - begin);
        block += static_cast<size_t>(begin / kKvGroup) * kKvGroupBytes;
        at = block + position * dims + dim - begin;
        stride = static_cast<size_t>(dims);
        first = position % 16;
        const std::byte* halves = block + dims * kPositions + (position - first) * 2;
        L::template load_kv<KvType::kF16>(halves).store(scales);
      } else {
        stride = static_cast<size_t>(row_dim) * kBytes;
        at = block + static_cast<size_t>(position) * stride + static_cast<size_t>(dim) * kBytes;
      }
    }
    [[gnu::always_inline]] L get(int n, int count) const {
      const std::byte* from = at + static_cast<size_t>(n) * stride;
      const L elements = L::template load_kv<type>(from, count);
      if constexpr (type != KvType::kQ8_0) return elements;
      return elements * L::set(scales[first + n]);
    }
  };

  template <int Q, int P>
  [[gnu::always_inline]] static void add_products(const KvTile<V, Q>& tile, const std::byte* block,
                                                  int first, L (&sums)[Q][P]) {
    static_assert(16 % P == 0);
    int i = 0;
    for (; i + 16 <= tile.head_dim; i += 16) {
      const Elements<P> elements(tile.head_dim, block, i, first);
      L keys[P];
#pragma GCC unroll 4
      for (int n = 0; n < P; ++n) keys[n] = elements.get(n, 16);
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        const L element = L::load(tile.query[q]->q + i);
#pragma GCC unroll 4
        for (int n = 0; n < P; ++n) sums[q][n] = fma(element, keys[n], sums[q][n]);
      }
    }
    const int rest = tile.head_dim - i;
    if (rest == 0) return;
    const Elements<P> elements(tile.head_dim, block, i, first);
    for (int n = 0; n < P; ++n) {
      const L key = elements.get(n, rest);
      for (int q = 0; q < Q; ++q) {
        sums[q][n] = fma(L::load(tile.query[q]->q + i, rest, 0), key, sums[q][n]);
      }
    }
  }
};

}  // namespace kernels
