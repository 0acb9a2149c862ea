// KV blocks of the layers that reach near positions only (a window, a chunk): a pool of their own,
// of which a sequence has only what its next positions can reach.
//
//   table   -1  -1  -1  17   4  22        17 … 22: within reach; before them: given back
//
// Like the other blocks they are reserved at admission and taken as a sequence grows. A block that
// falls out of reach keeps its contents until it is taken again: a later sequence with the same
// beginning starts behind the last block whose reach is still there.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step.h"
#include "model/model.h"
#include "worker/kv_blocks.h"
#include "worker/sealed_blocks.h"

namespace worker {

/// Gives near layers their own pool where that saves memory: fills in near_count and near_span of a
/// shape that is complete but for them. `sequences` of full context must fit.
void plan_near_pool(const model::ModelSpec& spec, int sequences, engine::RunnerShape& shape);

class NearBlocks {
 public:
  /// What one sequence has.
  struct Held {
    std::vector<int32_t> table = {};  // by block of the sequence; -1: given back
    size_t begin = 0;                 // the first that is held
    int32_t reserved = 0;             // in all
  };

  /// A shape without such a pool: nothing is ever needed. `sealed` may be null, else it must
  /// outlive this.
  NearBlocks(const engine::RunnerShape& shape, SealedBlocks* sealed);

  bool exists() const { return pool_.count() > 0; }
  bool can_reserve(int64_t positions_max) const { return pool_.can_reserve(need(positions_max)); }
  /// REQUIRES: can_reserve(positions_max).
  Held reserve(int64_t positions_max);

  /// How many of these sealed blocks, from the first on, a sequence can begin behind.
  size_t usable(std::span<const int32_t> blocks) const;
  /// Takes what position blocks.size() * kKvBlockPositions reaches. REQUIRES: usable(blocks) ==
  /// blocks.size().
  void adopt(std::span<const int32_t> blocks, Held& held);

  /// Before positions from `computed` on are computed: gives back what they do not reach and takes
  /// up to `blocks` in all. The first `sealed` have contents worth keeping.
  void grow(Held& held, int64_t computed, size_t blocks, size_t sealed);
  void release(Held& held, size_t sealed);

  const KvBlocks& pool() const { return pool_; }

 private:
  int32_t need(int64_t positions_max) const;
  /// The first block that position `position` reaches.
  size_t first_reached(int64_t position) const;

  const engine::RunnerShape shape_;
  SealedBlocks* const sealed_;
  KvBlocks pool_;
};

}  // namespace worker
