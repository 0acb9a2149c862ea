// Queries that meet one block of keys and values together (attend.h), as the KV types see them.
#pragma once

#include <type_traits>

#include "kernels/attend.h"

namespace kernels {

template <class V, int Q>
struct KvTile {
  const AttendQuery* query[Q];
  /// Positions of the block that count for each query, and for all of them.
  int begin[Q], end[Q];
  int common_begin, common_end;
  int head_dim, value_dim;

  KvTile(const AttendArgs& args, int block, const AttendQuery* const* queries)
      : common_begin(0),
        common_end(base::kKvBlockPositions),
        head_dim(args.head_dim),
        value_dim(args.value_dim) {
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
  bool counts(int q, int i) const { return i >= begin[q] && i < end[q]; }
};

}  // namespace kernels
