// The contract of attention: softmax(q K) V of many queries over one segment of a sequence's
// positions, and how segments become one.
//
//   positions  | segment 0: 8 blocks of 64 | segment 1 | … |
//   a query         Attended 0   ──merge──   Attended 1   …  ──finish──► out
//
// Segments are aligned to position 0 and meet in ascending order, whoever computes them: so a
// query's bits depend on its positions only, and threads may share a long context. Queries of one
// call, which have the same keys and values, share the loads of them and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "kernels/kv_type.h"

namespace kernels {

inline constexpr int kSegmentBlocks = base::kSegmentBlocks;
inline constexpr int64_t kSegmentPositions = int64_t{kSegmentBlocks} * base::kKvBlockPositions;

/// What a query has got from one segment, or from some in ascending order.
struct Attended {
  float top = 0;            // the largest score
  float total = 0;          // sum of exp(score - top)
  float* values = nullptr;  // [value_dim] sum of exp(score - top) * v; given by the caller
};

/// A query and its part of the segment.
struct AttendQuery {
  const float* q;  // [head_dim]
  float scale;     // multiplies q K
  int begin, end;  // positions of the segment that count: 0 <= begin < end <= kSegmentPositions
  Attended* out;
};

/// K of one block is stored [head_dim][kKvBlockPositions] (lanes are positions), V
/// [kKvBlockPositions][value_dim] (lanes are dimensions), both in `kv_type`, q8_0 as kv_type.h
/// says. Positions that count for no query may hold anything, and blocks of only such ones need not
/// be given.
struct AttendArgs {
  const AttendQuery* queries;
  int count;                         // of queries, at least 1
  const std::byte* const* k_blocks;  // [kSegmentBlocks]
  const std::byte* const* v_blocks;  // the same
  int head_dim;
  int value_dim;
  KvType kv_type;
  /// The values are the first value_dim elements of the keys, which are stored once, as V of
  /// head_dim; v_blocks are not looked at.
  bool is_latent = false;
};

}  // namespace kernels
