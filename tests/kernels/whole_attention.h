// Attention over whole sequences, segment after segment, as somebody who uses Ops does it.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace kernels::testing {

struct WholeQuery {
  const float* q;
  float scale;
  int64_t first;      // of the positions that count
  int64_t positions;  // behind the last one
  const float* sink;  // or nullptr
  float* out;         // [value_dim]
};

/// One sequence's cache; blocks that no query reaches may be null or missing.
struct WholeCache {
  std::span<const std::byte*const> k_blocks, v_blocks;
  int head_dim, value_dim;
  KvType kv_type;
  bool is_latent = false;
};

inline void attend_whole(const Ops& ops, const WholeCache& cache,
                         std::span<const WholeQuery> queries) {
  int64_t end = 0;
  for (const WholeQuery& query : queries) end = std::max(end, query.positions);
  std::vector<Attended> all(queries.size()), parts(queries.size());
  std::vector<std::vector<float>> values(queries.size());
  for (int64_t begin = 0; begin < end; begin += kSegmentPositions) {
    std::array<const std::byte*, kSegmentBlocks> k{}, v{};
    const auto first_block = static_cast<size_t>(begin / base::kKvBlockPositions);
    for (size_t b = 0; b < k.size() && first_block + b < cache.k_blocks.size(); ++b) {
      k[b] = cache.k_blocks[first_block + b];
      if (!cache.is_latent) v[b] = cache.v_blocks[first_block + b];
    }
    std::vector<AttendQuery> reached;
    std::vector<size_t> which;
    for (size_t i = 0; i < queries.size(); ++i) {
      const WholeQuery& query = queries[i];
      const int64_t from = std::max<int64_t>(0, query.first - begin);
      const int64_t to = std::min(kSegmentPositions, query.positions - begin);
      if (from >= to) continue;
      const bool is_first = query.first >= begin;
      Attended& part = is_first ? all[i] : parts[i];
      values[i].resize(static_cast<size_t>(cache.value_dim));
      part.values = is_first ? query.out : values[i].data();
      reached.push_back(
          {query.q, query.scale, static_cast<int>(from), static_cast<int>(to), &part});
      which.push_back(i);
    }
    if (reached.empty()) continue;
    ops.attend({.queries = reached.data(),
                .count = static_cast<int>(reached.size()),
                .k_blocks = k.data(),
                .v_blocks = v.data(),
                .head_dim = cache.head_dim,
                .value_dim = cache.value_dim,
                .kv_type = cache.kv_type,
                .is_latent = cache.is_latent});
    for (const size_t i : which) {
      if (queries[i].first < begin) ops.attend_merge(parts[i], cache.value_dim, all[i]);
    }
  }
  for (size_t i = 0; i < queries.size(); ++i) {
    ops.attend_finish(queries[i].sink, cache.value_dim, all[i]);
  }
}

}  // namespace kernels::testing
