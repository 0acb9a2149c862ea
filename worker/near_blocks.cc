#include "worker/near_blocks.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"

namespace worker {

namespace {

// Beside what full sequences need: room for more that are short, and for contents of ended ones.
constexpr int32_t kSpare = 4;
constexpr int32_t kShareOfAll = 8;

// Blocks that a sequence has at once: those of a whole step, and those that its first column
// reaches, at both ends cut by block boundaries.
int32_t blocks_at_once(int64_t span, int columns_max) {
  return static_cast<int32_t>((columns_max + span - 2) / base::kKvBlockPositions + 2);
}

std::vector<int32_t> kept(const SealedBlocks* sealed, int32_t count) {
  std::vector<int32_t> ids;
  if (sealed == nullptr || count == 0) return ids;
  for (const int32_t id : sealed->sealed_near()) {
    if (id >= 0 && id < count && std::find(ids.begin(), ids.end(), id) == ids.end())
      ids.push_back(id);
  }
  return ids;
}

}  // namespace

void plan_near_pool(const model::ModelSpec& spec, int sequences, engine::RunnerShape& shape) {
  int64_t span = 0;
  for (const model::Block& block : spec.blocks) {
    if (block.attention.reach != model::Reach::kAll)
      span = std::max<int64_t>(span, block.attention.span);
  }
  if (span == 0) return;
  const int64_t at_once = blocks_at_once(span, shape.columns_max);
  const int64_t count =
      std::max<int64_t>(at_once * kSpare * sequences, shape.kv_block_count / kShareOfAll);
  if (count >= shape.kv_block_count) return;
  shape.kv_near_count = static_cast<int32_t>(count);
  shape.near_span = span;
}

NearBlocks::NearBlocks(const engine::RunnerShape& shape, SealedBlocks* sealed)
    : shape_(shape),
      sealed_(sealed),
      pool_(shape.kv_near_count, kept(sealed, shape.kv_near_count)) {}

int32_t NearBlocks::need(int64_t positions_max) const {
  if (!exists()) return 0;
  return std::min(blocks_for(positions_max), blocks_at_once(shape_.near_span, shape_.columns_max));
}

size_t NearBlocks::first_reached(int64_t position) const {
  return static_cast<size_t>(std::max<int64_t>(position - shape_.near_span + 1, 0) /
                             base::kKvBlockPositions);
}

NearBlocks::Held NearBlocks::reserve(int64_t positions_max) {
  Held held;
  held.reserved = need(positions_max);
  const bool reserved = pool_.reserve(held.reserved);
  CHECK(reserved, "more near blocks than are free");
  return held;
}

size_t NearBlocks::usable(std::span<const int32_t> blocks) const {
  size_t count = blocks.size();
  if (!exists()) return count;
  const auto reaches = [&](size_t end) {
    for (size_t b = first_reached(static_cast<int64_t>(end) * base::kKvBlockPositions); b < end;
         b++)
      if (!pool_.is_kept(sealed_->near_of(blocks[b]))) return false;
    return true;
  };
  while (count > 0 && !reaches(count)) count--;
  return count;
}

void NearBlocks::adopt(std::span<const int32_t> blocks, Held& held) {
  if (!exists()) return;
  held.table.assign(blocks.size(), -1);
  held.begin = first_reached(static_cast<int64_t>(blocks.size()) * base::kKvBlockPositions);
  held.begin = std::min(held.begin, blocks.size());
  for (size_t b = held.begin; b < blocks.size(); b++) {
    held.table[b] = sealed_->near_of(blocks[b]);
    const bool taken = pool_.take_kept(held.table[b]);
    CHECK(taken, "near block ", held.table[b], " goes with two sealed blocks");
  }
}

void NearBlocks::grow(Held& held, int64_t computed, size_t blocks, size_t sealed) {
  if (!exists()) return;
  const size_t first = std::min(first_reached(computed), held.table.size());
  for (; held.begin < first; held.begin++) {
    int32_t& id = held.table[held.begin];
    pool_.release({&id, 1}, 0, held.begin < sealed ? 1 : 0);
    id = -1;
    // It was given back just now, so it is there for whatever this sequence takes next.
    const bool reserved = pool_.reserve(1);
    CHECK(reserved, "no near block where one was given back");
  }
  while (held.table.size() < blocks) {
    held.table.push_back(pool_.take());
    if (sealed_ != nullptr) sealed_->forget_near(held.table.back());
  }
}

void NearBlocks::release(Held& held, size_t sealed) {
  const auto own = std::span<const int32_t>(held.table).subspan(held.begin);
  pool_.release(own, held.reserved - static_cast<int32_t>(own.size()),
                sealed > held.begin ? std::min(sealed - held.begin, own.size()) : 0);
  held = {};
}

}  // namespace worker
