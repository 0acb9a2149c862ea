// The part of plan/footprint.h that is not weights: KV cache, exchange, buffers.
#include <algorithm>

#include "base/limits.h"
#include "plan/footprint.h"

namespace plan {

namespace {

constexpr uint64_t kRegionHeader = 4096;  // of shm/shm_exchange.h
constexpr int64_t kLogitBytesMax = int64_t{64} << 20;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t slots(const model::Block& block) {
  return block.experts ? block.experts->used : 1;
}

int64_t width_of(const model::Block& block) {
  return block.experts ? block.experts->width : block.dense_width;
}

/// Floats of the largest slice that a rank publishes of a layer, of one column.
int64_t largest_slice(const model::ModelSpec& spec, const model::Block& block,
                      const BlockShare& own) {
  const model::Attention& attention = block.attention;
  int64_t most = own.heads.size() * attention.output_dim();
  if (attention.qk_norm == model::QkNorm::kFullWidth)
    most = std::max(most, (own.heads.size() + own.kv_heads.size()) * attention.head_dim);
  most = std::max(most, own.query_rank.size() + own.latent.size());
  most = std::max(most, own.experts.size() + own.shared_router.size());
  if (!own.whole_experts)
    return std::max(most, slots(block) * own.width.size() + own.shared_width.size());
  // A token chooses no expert twice, so those of a rank give no more than it has.
  const int64_t chosen = std::min(slots(block), static_cast<int64_t>(own.owned.size()));
  return std::max({most, chosen * spec.hidden, own.shared_width.size()});
}

/// float32, int8 with a scale per 256 and int8 with one per 32: what a column of activations takes.
uint64_t activation_bytes(int64_t length) {
  const auto n = static_cast<uint64_t>(length);
  return 4 * n + n + n / 8 + n + n / 8;
}

}  // namespace

KvBlocks kv_blocks(const model::ModelSpec& spec, const KvRoom& room) {
  constexpr int64_t kSpare = 4, kShareOfAll = 8;
  KvBlocks out;
  out.all = (room.context + base::kKvBlockPositions - 1) / base::kKvBlockPositions * room.sequences;
  int64_t span = 0;
  for (const model::Block& block : spec.blocks)
    if (block.attention.reach != model::Reach::kAll)
      span = std::max<int64_t>(span, block.attention.span);
  if (span == 0) return out;
  const int64_t at_once = (room.chunk + span - 2) / base::kKvBlockPositions + 2;
  const int64_t near = std::max<int64_t>(at_once * kSpare * room.sequences, out.all / kShareOfAll);
  if (near < out.all) out.near = near;
  return out;
}

uint64_t kv_pool_bytes(const model::ModelSpec& spec, const RankShare& share, KvElement kv,
                       KvBlocks blocks) {
  uint64_t bytes = 0;
  const auto part = [&](int64_t dim) {
    return round_up(static_cast<uint64_t>(base::kKvBlockPositions * kv.row_bytes(dim)), 64);
  };
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Attention& attention = spec.blocks[layer].attention;
    const bool near = blocks.near > 0 && attention.reach != model::Reach::kAll;
    bytes += static_cast<uint64_t>(share.blocks[layer].kv_heads.size() *
                                   (near ? blocks.near : blocks.all)) *
             (part(attention.head_dim) + part(attention.cached_value_dim()));
  }
  return std::max<uint64_t>(bytes, 64);
}

uint64_t kv_read_bytes(const model::ModelSpec& spec, const RankShare& share, KvElement kv,
                       int64_t position) {
  int64_t bytes = 0;
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Attention& attention = spec.blocks[layer].attention;
    const int64_t positions = position + 1 - attention.first_position(position);
    bytes += share.blocks[layer].kv_heads.size() * positions *
             (kv.row_bytes(attention.head_dim) + kv.row_bytes(attention.cached_value_dim()));
  }
  return static_cast<uint64_t>(bytes);
}

HandedFloats handed_floats(const model::ModelSpec& spec, const Plan& plan, size_t layer) {
  const model::Block& block = spec.blocks[layer];
  const model::Attention& attention = block.attention;
  HandedFloats out;
  for (const RankShare& rank : plan.ranks) {
    const BlockShare& own = rank.blocks[layer];
    if (attention.qk_norm == model::QkNorm::kFullWidth)
      out.input += (own.heads.size() + own.kv_heads.size()) * attention.head_dim;
    out.input += own.query_rank.size() + own.latent.size();
    out.heads += own.heads.size() * attention.output_dim();
    out.hidden += own.hidden.size();
    out.router += own.experts.size() + own.shared_router.size();
    out.middle += own.shared_width.size();
    if (!own.whole_experts) out.middle += slots(block) * own.width.size();
  }
  const bool whole = !plan.ranks.empty() && plan.ranks[0].blocks[layer].whole_experts;
  if (whole) out.middle += slots(block) * spec.hidden;
  return out;
}

uint64_t exchange_bytes(const model::ModelSpec& spec, const Plan& plan, int chunk) {
  if (plan.rank_count() < 2) return 0;
  int64_t floats = chunk * spec.hidden;
  for (const RankShare& share : plan.ranks) {
    floats = std::max(floats, share.vocabulary.size());
    for (size_t layer = 0; layer < spec.blocks.size(); layer++)
      floats =
          std::max(floats, chunk * largest_slice(spec, spec.blocks[layer], share.blocks[layer]));
  }
  return kRegionHeader + 2 * round_up(static_cast<uint64_t>(floats) * sizeof(float), 64);
}

uint64_t scratch_bytes(const model::ModelSpec& spec, const RankShare& share, const ScratchOf& of) {
  uint64_t rank = 0, thread = 0;  // floats and activations of a column, the largest layer's
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Block& block = spec.blocks[layer];
    const model::Attention& attention = block.attention;
    const BlockShare& own = share.blocks[layer];
    const int64_t head = std::max(attention.head_dim, attention.value_dim);
    const auto floats = [](int64_t count) { return 4 * static_cast<uint64_t>(count); };
    const int64_t input = std::max(spec.hidden, int64_t{attention.heads} * attention.output_dim());
    const uint64_t slot_count = static_cast<uint64_t>(slots(block));
    rank = std::max(
        rank, floats(own.hidden.size() + (own.heads.size() + 2 * own.kv_heads.size()) * head *
                                             (attention.latent ? 2 : 1)) +
                  activation_bytes(input) +
                  slot_count * (floats(own.hidden.size()) + activation_bytes(width_of(block))));
    thread = std::max(thread, slot_count * floats(64 + 5) +
                                  activation_bytes(attention.latent ? attention.head_dim : 0));
  }
  const auto chunk = static_cast<uint64_t>(of.chunk);
  uint64_t bytes = chunk * (rank + static_cast<uint64_t>(of.threads) * thread) + kAttendedBytesMax;
  if (of.leads) {
    const int64_t row = spec.vocabulary * int64_t{sizeof(float)};
    bytes += static_cast<uint64_t>(std::clamp<int64_t>(kLogitBytesMax / row, 1, of.chunk) * row);
  }
  return bytes;
}

}  // namespace plan
