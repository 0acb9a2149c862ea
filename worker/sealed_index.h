// SealedBlocks over the table of a KV arena: the leader's index, which outlives its process.
//
// A block is known by the chain hash over the model and all tokens up to its end; the hash finds,
// the token ids decide. A new index over an old table finds what is there, after each entry was
// checked: an entry that is not what seal() writes loses its seal. Nothing is allocated after
// construction but the lists that are returned. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shm/kv_arena.h"
#include "worker/sealed_blocks.h"

namespace worker {

class SealedIndex final : public SealedBlocks {
 public:
  /// `table` has an entry for each block of the pool and must outlive the index; `root` begins the
  /// chains, shm::kv_chain_root(). `near_count`: blocks of the pool of near layers.
  SealedIndex(std::span<shm::KvBlockEntry> table, const shm::Hash128& root, int32_t near_count = 0);

  std::vector<int32_t> sealed() const override;
  std::vector<int32_t> find(std::span<const int32_t> tokens,
                            const std::function<bool(int32_t)>& usable) override;
  void seal(const Place& place, std::span<const int32_t> tokens) override;
  void forget(int32_t block) override;
  int32_t near_of(int32_t block) const override {
    return is_sealed(block) ? entry(block).near : -1;
  }
  std::vector<int32_t> sealed_near() const override;
  void forget_near(int32_t near) override;

  int32_t count() const { return static_cast<int32_t>(table_.size()); }
  int32_t sealed_count() const { return sealed_count_; }
  bool is_sealed(int32_t block) const { return shm::is_sealed(entry(block)); }

 private:
  const shm::KvBlockEntry& entry(int32_t block) const { return table_[static_cast<size_t>(block)]; }
  size_t bucket(const shm::Hash128& chain) const { return chain.low & (heads_.size() - 1); }
  void link(int32_t block);

  const std::span<shm::KvBlockEntry> table_;
  const shm::Hash128 root_;
  std::vector<int32_t> heads_;       // [power of two] first block of a bucket, -1: none
  std::vector<int32_t> next_;        // [count()] of the same bucket
  std::vector<int32_t> near_owner_;  // [near blocks] the sealed block that each goes with, or -1
  int32_t sealed_count_ = 0;
};

}  // namespace worker
