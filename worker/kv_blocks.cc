#include "worker/kv_blocks.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"

namespace worker {

KvBlocks::KvBlocks(int32_t count, std::span<const int32_t> kept)
    : count_(count), links_(static_cast<size_t>(std::max(count, 0)) + 1) {
  CHECK(count >= 0, "a pool of ", count, " blocks");
  links(count) = {count, count};
  for (const int32_t id : kept) {
    CHECK(id >= 0 && id < count && !is_kept(id), "block ", id, " of ", count, " twice or unknown");
    keep(id);
  }
  for (int32_t id = count - 1; id >= 0; id--)
    if (!is_kept(id)) free_.push_back(id);
}

void KvBlocks::keep(int32_t id) {
  CHECK(!is_kept(id), "block ", id, " given back twice");
  const int32_t last = links(count_).before;
  links(id) = {last, count_};
  links(last).after = links(count_).before = id;
  kept_count_++;
}

void KvBlocks::unkeep(int32_t id) {
  const Links own = links(id);
  links(own.before).after = own.after;
  links(own.after).before = own.before;
  links(id) = {};
  kept_count_--;
}

bool KvBlocks::reserve(int32_t blocks) {
  CHECK(blocks >= 0, "a reservation of ", blocks, " blocks");
  if (!can_reserve(blocks)) return false;
  promised_ += blocks;
  return true;
}

int32_t KvBlocks::take() {
  CHECK(promised_ > 0 && free_count() > 0, "a block that was not reserved");
  int32_t id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    id = links(count_).after;
    unkeep(id);
  }
  count_taken();
  return id;
}

bool KvBlocks::take_kept(int32_t id) {
  CHECK(promised_ > 0, "a block that was not reserved");
  if (!is_kept(id)) return false;
  reused_++;
  unkeep(id);
  count_taken();
  return true;
}

void KvBlocks::count_taken() {
  promised_--;
  peak_ = std::max(peak_, used());
}

void KvBlocks::release(std::span<const int32_t> blocks, int32_t untaken, size_t kept) {
  CHECK(untaken >= 0 && untaken <= promised_, "untaken ", untaken, " of ", promised_);
  CHECK(static_cast<int32_t>(blocks.size()) <= used(), "more blocks than were taken");
  CHECK(kept <= blocks.size(), "more contents than blocks");
  promised_ -= untaken;
  const std::span<const int32_t> without = blocks.subspan(kept);
  free_.insert(free_.end(), without.begin(), without.end());
  // A block is worth nothing without those before it: the last one goes first.
  for (size_t i = kept; i > 0; i--) keep(blocks[i - 1]);
}

int32_t blocks_for(int64_t positions) {
  return static_cast<int32_t>((positions + base::kKvBlockPositions - 1) / base::kKvBlockPositions);
}

}  // namespace worker
