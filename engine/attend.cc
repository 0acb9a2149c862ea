// Own heads of q against the cache, and what turns a head before it is compared or stored.
#include <algorithm>

#include "base/limits.h"
#include "engine/pass.h"
#include "kernels/math.h"

namespace engine {

namespace {

// How much the scores of a position grow with it.
float temperature(const model::Attention& attention, int64_t position) {
  if (!attention.temperature) return 1;
  const auto& [length, log_factor] = *attention.temperature;
  const auto steps = static_cast<double>((position + 1) / length);
  return static_cast<float>(1 + log_factor * kernels::log_f64(steps + 1));
}

}  // namespace

// Every (column, own query head). With keys still to be stored the unit is a (column, own KV head)
// with all its query heads.
void Pass::attend(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t heads = share.heads.size();
  const bool stores =
      attention.qk_norm == model::QkNorm::kFullWidth && redundant() && step_.one_column_each();
  if (stores) return attend_and_store(layer);
  const auto work = [&](plan::Range items) {
    for (int64_t i = items.begin; i < items.end; i++) {
      attend_head(layer, static_cast<int>(i / heads), i % heads);
    }
  };
  deal(columns() * heads, work, Phase::kAttention);
}

void Pass::attend_and_store(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t kv_heads = share.kv_heads.size();
  const int64_t group = attention.heads / attention.kv_heads;
  const auto work = [&](plan::Range items) {
    for (int64_t i = items.begin; i < items.end; i++) {
      const auto c = static_cast<int>(i / kv_heads);
      const int64_t kv_head = i % kv_heads;
      store_key(layer, c, kv_head,
                scratch_.k.data() + (c * kv_heads + kv_head) * attention.head_dim);
      const int64_t first = (share.kv_heads.begin + kv_head) * group;
      for (int64_t head = std::max(first, share.heads.begin);
           head < std::min(first + group, share.heads.end); head++) {
        attend_head(layer, c, head - share.heads.begin);
      }
    }
  };
  deal(columns() * kv_heads, work, Phase::kAttention);
}

void Pass::attend_head(size_t layer, int c, int64_t own_head) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t heads = share.heads.size();
  const bool own_q = attention.qk_norm == model::QkNorm::kFullWidth && redundant();
  const float* q =
      (own_q ? scratch_.q : rank_.q).data() + (c * heads + own_head) * attention.head_dim;
  float* head = scratch_.head.data();
  std::copy_n(q, attention.head_dim, head);
  turn_head(layer, c, weights.q_norm, head);
  attend_over(layer, c, own_head, head, outgoing() + (c * heads + own_head) * attention.value_dim);
}

// One query, ready to be compared with the keys of its head's group, over the positions that its
// layer reaches. Blocks that hold none of them are not looked up.
void Pass::attend_over(size_t layer, int c, int64_t own_head, const float* query, float* out) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const float* sinks = rank_.options.weights->blocks[layer].sinks;
  const int64_t head = share.heads.begin + own_head;
  const int64_t kv_head = head / (attention.heads / attention.kv_heads) - share.kv_heads.begin;
  const Column& column = step_.columns()[as_size(c)];
  const auto blocks = blocks_of(layer, column.sequence);
  const int64_t positions = column.position + 1;
  const int64_t first = attention.first_position(column.position);
  for (int64_t b = first / base::kKvBlockPositions; b * base::kKvBlockPositions < positions; b++) {
    const int32_t block = blocks[as_size(b)];
    scratch_.k_blocks[as_size(b)] = rank_.options.kv->k_block(layer, block, kv_head);
    scratch_.v_blocks[as_size(b)] = rank_.options.kv->v_block(layer, block, kv_head);
  }
  rank_.ops.attend({.q = query,
                    .k_blocks = scratch_.k_blocks.data(),
                    .v_blocks = scratch_.v_blocks.data(),
                    .positions = positions,
                    .first = first,
                    .head_dim = attention.head_dim,
                    .value_dim = attention.value_dim,
                    .scale = rank_.score_scale[layer] * temperature(attention, column.position),
                    .kv_type = rank_.options.kv->type(),
                    .sink = sinks == nullptr ? nullptr : sinks + head,
                    .out = out});
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
