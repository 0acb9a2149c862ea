#include "worker/kv_blocks.h"

#include <algorithm>

#include "base/check.h"
#include "base/limits.h"

namespace worker {

KvBlocks::KvBlocks(int32_t count) : count_(count) {
  CHECK(count >= 0, "a pool of ", count, " blocks");
  for (int32_t id = count - 1; id >= 0; id--) free_.push_back(id);
}

bool KvBlocks::reserve(int32_t blocks) {
  CHECK(blocks >= 0, "a reservation of ", blocks, " blocks");
  if (!can_reserve(blocks)) return false;
  promised_ += blocks;
  return true;
}

int32_t KvBlocks::take() {
  CHECK(promised_ > 0 && !free_.empty(), "a block that was not reserved");
  promised_--;
  const int32_t id = free_.back();
  free_.pop_back();
  peak_ = std::max(peak_, used());
  return id;
}

void KvBlocks::release(std::span<const int32_t> blocks, int32_t untaken) {
  CHECK(untaken >= 0 && untaken <= promised_, "untaken ", untaken, " of ", promised_);
  CHECK(static_cast<int32_t>(blocks.size()) <= used(), "more blocks than were taken");
  promised_ -= untaken;
  free_.insert(free_.end(), blocks.begin(), blocks.end());
}

int32_t blocks_for(int64_t positions) {
  return static_cast<int32_t>((positions + base::kKvBlockPositions - 1) / base::kKvBlockPositions);
}

}  // namespace worker
