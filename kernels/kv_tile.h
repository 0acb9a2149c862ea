// Queries that meet one block of keys and values together (attend.h), as the KV types see them.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/attend.h"
#include "kernels/lanes16.h"

namespace kernels {

/// Queries of a tile. With 4 groups of 16 lanes each their sums take 16 of 32 registers; where
/// there are 16 registers, less groups take 8 of them.
inline constexpr int kKvTile = 4;
template <class V>
inline constexpr int kKvSums = V::kLanes == 16 ? 16 : 8;
/// Groups of 16 lanes whose sums of Q queries are held at a time.
template <class V, int Q>
inline constexpr int kKvGroups = std::clamp(kKvSums<V> / (Q * Lanes16<V>::kRegisters), 1, 4);

/// Sums of Q queries, G times 16 lanes each; they begin with 0.
template <class V, int Q, int G>
[[gnu::always_inline]] inline void clear_sums(Lanes16<V> (&sums)[Q][G]) {
#pragma GCC unroll 4
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 4
    for (int n = 0; n < G; ++n) sums[q][n] = Lanes16<V>::set(0);
  }
}

template <class V, int Q>
struct KvTile {
  const AttendQuery* query[Q];
  /// Positions of the block that count for each query, and for all of them.
  int begin[Q], end[Q];
  int common_begin, common_end;
  int head_dim, value_dim;
  int row_dim;  // elements of a position where values are stored

  KvTile(const AttendArgs& args, int block, const AttendQuery* const* queries)
      : common_begin(0),
        common_end(base::kKvBlockPositions),
        head_dim(args.head_dim),
        value_dim(args.value_dim),
        row_dim(args.is_latent ? args.head_dim : args.value_dim) {
    constexpr int kPositions = base::kKvBlockPositions;
    for (int q = 0; q < Q; ++q) {
      query[q] = queries[q];
      const int first = queries[q]->begin - block * kPositions;
      const int last = queries[q]->end - block * kPositions;
      begin[q] = first > 0 ? first : 0;
      end[q] = last < kPositions ? last : kPositions;
      if (begin[q] > common_begin) common_begin = begin[q];
      if (end[q] < common_end) common_end = end[q];
    }
  }

  /// Calls step(i, some) for every position that counts for a query, in ascending order. Where
  /// `some` is std::true_type, it may not count for all of them: counts() says.
  template <class Step>
  [[gnu::always_inline]] void each_position(Step step) const {
    if (common_begin == 0 && common_end == base::kKvBlockPositions) {
      for (int i = 0; i < base::kKvBlockPositions; ++i) step(i, std::false_type{});
      return;
    }
    int i = begin[0], last = end[0];
    for (int q = 1; q < Q; ++q) {
      if (begin[q] < i) i = begin[q];
      if (end[q] > last) last = end[q];
    }
    if constexpr (Q > 1) {
      for (; i < common_begin; ++i) step(i, std::true_type{});
    }
    for (; i < common_end; ++i) step(i, std::false_type{});
    if constexpr (Q > 1) {
      for (; i < last; ++i) step(i, std::true_type{});
    }
  }
  /// Sums of G times 16 positions from `first` on become scores.
  template <int G>
  [[gnu::always_inline]] void store_scores(const Lanes16<V> (&sums)[Q][G], int first,
                                           float (*out)[base::kKvBlockPositions]) const {
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      const auto scale = Lanes16<V>::set(query[q]->scale);
#pragma GCC unroll 4
      for (int n = 0; n < G; ++n) (sums[q][n] * scale).store(out[q] + first + 16 * n);
    }
  }
  bool counts(int q, int i) const {
    return i >= begin[q] && i < end[q];
  }
};

}  // namespace kernels
