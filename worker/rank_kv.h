// The KV pool of one rank from the search for an old one to the engine's memory.
//
//   find()      before the ranks meet: is there a pool of an earlier life, and of which stamp
//   discard()   after it, unless all keep theirs: frees its memory before the weights come
//   open()      the pool that was found, or a new one
//
// With a name the pool stays for the next process of this rank; without one it goes with this one.
// Rank 0 also has the index of sealed blocks. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/kv_cache.h"
#include "engine/step.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/kv_arena.h"
#include "worker/sealed_index.h"

namespace worker {

struct RankKvOptions {
  std::string path;
  bool named = false;  // stays there for the next process
  bool small_pages = false;
  int32_t near_count = 0;  // engine::KvCounts::near
  shm::KvIdentity identity;
};

/// What a rank of this model and plan keeps.
struct KvIdentityOptions {
  const model::Model* model = nullptr;
  const plan::Plan* plan = nullptr;
  const kernels::Ops* ops = nullptr;
  kernels::KvType type = kernels::KvType::kF16;
  engine::KvCounts counts;
  int rank = 0;
  int os_node = -1;
};
shm::KvIdentity kv_identity(const KvIdentityOptions& options);

class RankKv {
 public:
  /// Errors: kUnavailable if an earlier process of this rank does not end; kSystem.
  static base::Result<RankKv> find(RankKvOptions options);

  /// Of the pool that was found; 0: none that can be kept.
  uint64_t stamp() const { return found_.stamp; }

  /// What was found is of no use to the group.
  void discard();
  /// On the thread whose node it is. `stamp` is the group's, that of the pool that was found if it
  /// was not discarded. Errors: kNoSpace, kSystem, kBrokenFile, those of `keep_on`, which is asked
  /// while memory is reserved.
  base::Status open(uint64_t stamp, const std::function<base::Status()>& keep_on = {});

  bool is_open() const { return arena_.has_value(); }

  // REQUIRES: open() succeeded.
  std::byte* data() const { return arena_->pool().data(); }
  size_t bytes() const { return arena_->pool().size(); }
  const shm::KvArena& arena() const { return *arena_; }
  /// Rank 0, else nullptr.
  SealedIndex* sealed() { return sealed_ ? &*sealed_ : nullptr; }
  /// Blocks that an earlier process sealed; rank 0.
  int32_t found_blocks() const { return found_blocks_; }
  /// Why a pool that was there is not kept; may be empty.
  const std::string& note() const { return note_; }

 private:
  RankKv() = default;

  RankKvOptions options_;
  shm::FoundKvArena found_;
  std::optional<shm::KvArena> arena_;
  std::optional<SealedIndex> sealed_;
  int32_t found_blocks_ = 0;
  std::string note_;
};

}  // namespace worker
