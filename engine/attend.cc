// Own heads of q against the cache, and what turns a head before it is compared or stored.
//
//   queries of an item: segment after segment, each merged with those before it
//   of a part:          each of its segments into a slot; the last part merges all slots
#include <algorithm>
#include <array>

#include "base/limits.h"
#include "engine/pass.h"
#include "kernels/math.h"

namespace engine {

namespace {

using kernels::kSegmentPositions;

// How much the scores of a position grow with it.
float temperature(const model::Attention& attention, int64_t position) {
  if (!attention.temperature) return 1;
  const auto& [length, log_factor] = *attention.temperature;
  const auto steps = static_cast<double>((position + 1) / length);
  return static_cast<float>(1 + log_factor * kernels::log_f64(steps + 1));
}

}  // namespace

// Queries of one sequence and one KV head.
struct Pass::Queries {
  Queries(size_t layer, int32_t sequence, int64_t kv_head)
      : layer(layer), sequence(sequence), kv_head(kv_head) {}

  size_t layer;
  int32_t sequence;
  int64_t kv_head;  // own
  int count = 0;
  std::array<kernels::AttendQuery, kQueriesTogether> query;
  std::array<kernels::Attended, kQueriesTogether> all;  // values: the results
  std::array<const float*, kQueriesTogether> sink;
  std::array<plan::Range, kQueriesTogether> positions;  // that each reaches

  plan::Range segments() const {
    plan::Range reached = positions[0];
    for (int i = 1; i < count; i++) {
      const plan::Range& own = positions[as_size(i)];
      reached = {std::min(reached.begin, own.begin), std::max(reached.end, own.end)};
    }
    return {reached.begin / kSegmentPositions, (reached.end - 1) / kSegmentPositions + 1};
  }
  /// The positions of a segment that count for query i.
  plan::Range part(int i, int64_t segment) const {
    const int64_t begin = segment * kSegmentPositions;
    return {std::max<int64_t>(0, positions[as_size(i)].begin - begin),
            std::min(kSegmentPositions, positions[as_size(i)].end - begin)};
  }
};

void Pass::attend(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const bool stores = leaves_keys(layer);
  int64_t segments = 1;
  for (const Column& column : step_.columns()) {
    const int64_t first = attention.first_position(column.position) / kSegmentPositions;
    segments = std::max(segments, column.position / kSegmentPositions + 1 - first);
  }
  const AttendItems items = share_attention({.columns = columns(),
                                             .heads = rank_.share.blocks[layer].heads,
                                             .kv_heads = rank_.share.blocks[layer].kv_heads,
                                             .group = attention.heads / attention.kv_heads,
                                             .segments = segments,
                                             .threads = threads(),
                                             .has_neighbours = !step_.one_column_each(),
                                             .whole_groups = stores,
                                             .slots = static_cast<int64_t>(rank_.attended.size())});
  const auto work = [&](plan::Range range) {
    for (int64_t i = range.begin; i < range.end; i++) {
      const AttendItems::Item item = items.at(i);
      if (items.parts > 1) {
        attend_part(layer, item, {.parts = items.parts, .segments = segments, .stores = stores});
      } else {
        attend_whole(layer, item, stores);
      }
    }
  };
  deal(items.count(), work, Phase::kAttention);
}

// In decode, behind a norm over all heads, keys are stored by the thread that attends with them:
// one wait less. A group that is too large for one item would have several such threads.
bool Pass::leaves_keys(size_t layer) const {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  return attention.qk_norm == model::QkNorm::kFullWidth && redundant() && step_.one_column_each() &&
         attention.heads / attention.kv_heads <= kQueriesTogether;
}

void Pass::store_keys(size_t layer, const AttendItems::Item& item) {
  const int64_t kv_heads = rank_.share.blocks[layer].kv_heads.size();
  const int64_t dim = rank_.spec.blocks[layer].attention.head_dim;
  for (int64_t c = item.columns.begin; c < item.columns.end; c++) {
    store_key(layer, static_cast<int>(c), item.kv_head,
              scratch_.k.data() + (c * kv_heads + item.kv_head) * dim);
  }
}

// Adds those of one column, turned.
void Pass::add_queries(int c, plan::Range heads, Queries& queries) {
  const model::Attention& attention = rank_.spec.blocks[queries.layer].attention;
  const plan::BlockShare& share = rank_.share.blocks[queries.layer];
  const float* sinks = rank_.options.weights->blocks[queries.layer].sinks;
  const Column& column = step_.columns()[as_size(c)];
  for (int64_t head = heads.begin; head < heads.end; head++) {
    const size_t i = as_size(queries.count++);
    float* q = scratch_.heads.data() + i * as_size(attention.head_dim);
    float* out = load_query(queries.layer, c, head, q);
    queries.all[i].values = out;
    queries.query[i] = {
        .q = q,
        .scale = rank_.score_scale[queries.layer] * temperature(attention, column.position),
        .begin = 0,
        .end = 0,
        .out = nullptr};
    queries.sink[i] = sinks == nullptr ? nullptr : sinks + share.heads.begin + head;
    queries.positions[i] = {attention.first_position(column.position), column.position + 1};
  }
}

// A query as it is compared with keys; where its result belongs.
float* Pass::load_query(size_t layer, int c, int64_t own_head, float* q) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t index = c * rank_.share.blocks[layer].heads.size() + own_head;
  if (attention.latent) return load_latent_query(layer, c, index, q);
  const bool own_q = attention.qk_norm == model::QkNorm::kFullWidth && redundant();
  const float* from = (own_q ? scratch_.q : rank_.q).data() + index * attention.head_dim;
  std::copy_n(from, attention.head_dim, q);
  turn_head(layer, c, rank_.options.weights->blocks[layer].q_norm, q);
  return outgoing() + index * attention.value_dim;
}

// All positions of the item's queries, sequence after sequence.
void Pass::attend_whole(size_t layer, const AttendItems::Item& item, bool stores) {
  if (stores) store_keys(layer, item);
  const plan::Range& heads = item.heads;
  if (heads.empty()) return;
  const int64_t value_dim = rank_.spec.blocks[layer].attention.value_dim;
  for (int64_t c = item.columns.begin; c < item.columns.end;) {
    Queries queries(layer, step_.columns()[as_size(c)].sequence, item.kv_head);
    for (; c < item.columns.end && step_.columns()[as_size(c)].sequence == queries.sequence; c++) {
      add_queries(static_cast<int>(c), heads, queries);
    }
    const plan::Range segments = queries.segments();
    for (int64_t s = segments.begin; s < segments.end; s++) attend_segment(s, queries);
    for (int i = 0; i < queries.count; i++) {
      rank_.ops.attend_finish(queries.sink[as_size(i)], static_cast<int>(value_dim),
                              queries.all[as_size(i)]);
    }
  }
}

// One segment, merged with those before it.
void Pass::attend_segment(int64_t segment, Queries& queries) {
  const int value_dim = rank_.spec.blocks[queries.layer].attention.value_dim;
  std::array<kernels::AttendQuery, kQueriesTogether> reached;
  std::array<kernels::Attended, kQueriesTogether> next;
  std::array<int, kQueriesTogether> merged;
  int count = 0, merged_count = 0;
  for (int i = 0; i < queries.count; i++) {
    const plan::Range part = queries.part(i, segment);
    if (part.begin >= part.end) continue;
    kernels::AttendQuery& query = reached[as_size(count++)];
    query = queries.query[as_size(i)];
    query.begin = static_cast<int>(part.begin);
    query.end = static_cast<int>(part.end);
    query.out = &queries.all[as_size(i)];
    if (queries.positions[as_size(i)].begin >= segment * kSegmentPositions) continue;
    next[as_size(i)].values = scratch_.attended.data() + i * value_dim;
    query.out = &next[as_size(i)];
    merged[as_size(merged_count++)] = i;
  }
  if (count == 0) return;
  call_attend(segment, queries, {reached.data(), as_size(count)});
  for (int n = 0; n < merged_count; n++) {
    const size_t i = as_size(merged[as_size(n)]);
    rank_.ops.attend_merge(next[i], value_dim, queries.all[i]);
  }
}

void Pass::call_attend(int64_t segment, const Queries& queries,
                       std::span<const kernels::AttendQuery> reached) {
  const model::Attention& attention = rank_.spec.blocks[queries.layer].attention;
  const auto blocks = blocks_of(queries.layer, queries.sequence);
  int begin = reached[0].begin, end = reached[0].end;
  for (const kernels::AttendQuery& query : reached) {
    begin = std::min(begin, query.begin);
    end = std::max(end, query.end);
  }
  // Blocks that hold no position that counts are not looked up.
  std::array<const std::byte*, kernels::kSegmentBlocks> k_blocks, v_blocks;
  for (int b = begin / base::kKvBlockPositions; b * base::kKvBlockPositions < end; b++) {
    const int32_t block = blocks[as_size(segment * kernels::kSegmentBlocks + b)];
    k_blocks[as_size(b)] = rank_.options.kv->k_block(queries.layer, block, queries.kv_head);
    if (attention.latent) continue;
    v_blocks[as_size(b)] = rank_.options.kv->v_block(queries.layer, block, queries.kv_head);
  }
  rank_.ops.attend({.queries = reached.data(),
                    .count = static_cast<int>(reached.size()),
                    .k_blocks = k_blocks.data(),
                    .v_blocks = v_blocks.data(),
                    .head_dim = attention.head_dim,
                    .value_dim = attention.value_dim,
                    .kv_type = rank_.options.kv->type(),
                    .is_latent = attention.latent.has_value()});
}

// Some segments of one column's queries, each into its slot. Whoever is the last of the parts
// merges all of them.
void Pass::attend_part(size_t layer, const AttendItems::Item& item, const AttendParts& parts) {
  const plan::Range& heads = item.heads;
  const int64_t c = item.columns.begin, value_dim = rank_.spec.blocks[layer].attention.value_dim;
  const bool is_last = item.part + 1 == parts.parts;
  if (parts.stores && is_last) store_keys(layer, item);  // it has the column's position
  if (heads.empty()) return;
  Queries queries(layer, step_.columns()[as_size(c)].sequence, item.kv_head);
  add_queries(static_cast<int>(c), heads, queries);
  const plan::Range segments = queries.segments();
  const auto slot = [&](int i, int64_t segment) -> kernels::Attended& {
    const int64_t head = c * rank_.share.blocks[layer].heads.size() + heads.begin + i;
    const size_t at = as_size(head * parts.segments + segment - segments.begin);
    rank_.attended[at].values = rank_.attended_values.data() + at * as_size(value_dim);
    return rank_.attended[at];
  };
  const int64_t n = segments.size();
  for (int64_t s = segments.begin + n * item.part / parts.parts;
       s < segments.begin + n * (item.part + 1) / parts.parts; s++) {
    for (int i = 0; i < queries.count; i++) {
      const plan::Range part = queries.part(i, s);
      queries.query[as_size(i)].begin = static_cast<int>(part.begin);
      queries.query[as_size(i)].end = static_cast<int>(part.end);
      queries.query[as_size(i)].out = &slot(i, s);
    }
    call_attend(s, queries, {queries.query.data(), as_size(queries.count)});
  }
  if (!rank_.parts_done.is_last(as_size(item.whole), scratch_.dispatch, parts.parts)) return;
  for (int i = 0; i < queries.count; i++) {
    kernels::Attended& all = slot(i, segments.begin);
    for (int64_t s = segments.begin + 1; s < segments.end; s++) {
      rank_.ops.attend_merge(slot(i, s), static_cast<int>(value_dim), all);
    }
    rank_.ops.attend_finish(queries.sink[as_size(i)], static_cast<int>(value_dim), all);
    std::copy_n(all.values, value_dim, queries.all[as_size(i)].values);
  }
}

void Pass::rope(size_t layer, int c, float* head) const {
  const model::Rope& rope = rank_.spec.blocks[layer].attention.rope;
  if (rope.dims == 0) return;
  const size_t at =
      (as_size(rank_.rope_table_of[layer]) * as_size(rank_.options.shape.columns_max) +
       as_size(c)) *
      as_size(rank_.rope_pairs_max);
  rank_.ops.rope(rope.style == model::RopeStyle::kInterleaved ? kernels::RopePairs::kInterleaved
                                                              : kernels::RopePairs::kHalves,
                 rank_.cos.data() + at, rank_.sin.data() + at, rope.dims, head);
}

// Norm and rope of one head of q or k, in the order the layer has them.
void Pass::turn_head(size_t layer, int c, const float* norm, float* head) const {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const float epsilon = rank_.spec.norm_epsilon;
  if (attention.qk_norm == model::QkNorm::kPerHead) {
    rank_.ops.rms_norm(head, norm, attention.head_dim, epsilon, head);
  }
  rope(layer, c, head);
  if (attention.qk_norm == model::QkNorm::kAfterRope) {
    rank_.ops.rms_norm(head, rank_.ones.data(), attention.head_dim, epsilon, head);
  }
}

}  // namespace engine
