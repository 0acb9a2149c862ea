// The free list of KV blocks of a group, with reservations.
//
// A request reserves at admission what it can ever need and takes block by block as it grows, so a
// request that was admitted never runs out and no one is thrown out of the cache again.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace worker {

class KvBlocks {
 public:
  explicit KvBlocks(int32_t count);

  int32_t count() const { return count_; }
  int32_t used() const { return count_ - static_cast<int32_t>(free_.size()); }
  int32_t peak() const { return peak_; }

  /// False if that many are not free or are promised to others.
  bool reserve(int32_t blocks);
  /// Whether reserve(blocks) would succeed.
  bool can_reserve(int32_t blocks) const {
    return static_cast<int32_t>(free_.size()) - promised_ >= blocks;
  }
  /// One of the reserved ones. REQUIRES: a reservation that is not used up.
  int32_t take();
  /// Gives blocks back, and the part of the reservation that was not taken.
  void release(std::span<const int32_t> blocks, int32_t untaken);

 private:
  const int32_t count_;
  std::vector<int32_t> free_;  // ids; the last one goes first
  int32_t promised_ = 0;       // reserved and not yet taken
  int32_t peak_ = 0;
};

/// Blocks that hold `positions` positions.
int32_t blocks_for(int64_t positions);

}  // namespace worker
