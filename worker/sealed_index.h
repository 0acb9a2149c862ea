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
  /// chains, shm::kv_chain_root().
  SealedIndex(std::span<shm::KvBlockEntry> table, const shm::Hash128& root);

  std::vector<int32_t> sealed() const override;
  std::vector<int32_t> find(std::span<const int32_t> tokens,
                            const std::function<bool(int32_t)>& usable) override;
  void seal(int32_t block, int32_t previous, std::span<const int32_t> tokens) override;
  void forget(int32_t block) override;

  int32_t count() const { return static_cast<int32_t>(table_.size()); }
  int32_t sealed_count() const { return sealed_count_; }
  bool is_sealed(int32_t block) const { return shm::is_sealed(entry(block)); }

 private:
  const shm::KvBlockEntry& entry(int32_t block) const { return table_[static_cast<size_t>(block)]; }
  size_t bucket(const shm::Hash128& chain) const { return chain.low & (heads_.size() - 1); }
  void link(int32_t block);

  const std::span<shm::KvBlockEntry> table_;
  const shm::Hash128 root_;
  std::vector<int32_t> heads_;  // [power of two] first block of a bucket, -1: none
  std::vector<int32_t> next_;   // [count()] of the same bucket
  int32_t sealed_count_ = 0;
};

}  // namespace worker
