// The free list of KV blocks of a group, with reservations.
//
// A request reserves at admission what it can ever need and takes block by block as it grows, so a
// request that was admitted never runs out and no one is thrown out of the cache again. Free blocks
// whose contents somebody may still want are kept apart and taken last, the oldest first.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace worker {

class KvBlocks {
 public:
  /// All are free; the contents of `kept` (ids, each at most once) are worth keeping, least of the
  /// first.
  explicit KvBlocks(int32_t count, std::span<const int32_t> kept = {});

  int32_t count() const { return count_; }
  int32_t used() const { return count_ - free_count(); }
  int32_t peak() const { return peak_; }
  /// Blocks that take_kept() gave so far.
  uint64_t reused() const { return reused_; }

  /// False if that many are not free or are promised to others.
  bool reserve(int32_t blocks);
  /// Whether reserve(blocks) would succeed.
  bool can_reserve(int32_t blocks) const { return free_count() - promised_ >= blocks; }
  /// One of the reserved ones. REQUIRES: a reservation that is not used up.
  int32_t take();
  /// Whether `id` is a free block with contents.
  bool is_kept(int32_t id) const {
    return id >= 0 && id < count_ && links_[static_cast<size_t>(id)].after >= 0;
  }
  /// The kept block `id` with its contents, out of a reservation; false if it is not a free one
  /// with contents. REQUIRES: as take().
  bool take_kept(int32_t id);
  /// Gives blocks back, and the part of the reservation that was not taken. The contents of the
  /// first `kept` are worth keeping, of the first most.
  void release(std::span<const int32_t> blocks, int32_t untaken, size_t kept = 0);

 private:
  // Kept blocks are a ring of links through `count_`, which is no block; -1: not in it.
  struct Links {
    int32_t before = -1, after = -1;
  };
  int32_t free_count() const { return static_cast<int32_t>(free_.size()) + kept_count_; }
  Links& links(int32_t id) { return links_[static_cast<size_t>(id)]; }
  void keep(int32_t id);
  void unkeep(int32_t id);
  void count_taken();

  const int32_t count_;
  std::vector<int32_t> free_;  // ids; the last one goes first
  std::vector<Links> links_;   // [count_ + 1] free ones with contents; the first one goes first
  int32_t kept_count_ = 0;
  int32_t promised_ = 0;  // reserved and not yet taken
  int32_t peak_ = 0;
  uint64_t reused_ = 0;
};

/// Blocks that hold `positions` positions.
int32_t blocks_for(int64_t positions);

}  // namespace worker
