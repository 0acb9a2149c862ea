// What the arenas of a model's weights are called, and what tells whether one holds what is wanted.
//
// Pure functions of model, plan and arithmetic, so that all processes agree without talking.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/weights.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/arena.h"

namespace worker {

/// Of all ranks of one model under one plan.
struct WeightNames {
  std::string prefix;  // "w-<model>-<plan>-"
  uint64_t model = 0;  // a hash of tensor table and sizes, not of the files' times
  uint64_t plan = 0;   // a hash of the rows and layouts of all ranks
};
WeightNames weight_names(const model::Model& model, const plan::Plan& plan,
                         const kernels::Ops& ops);

struct SliceOf {
  int rank = 0, rank_count = 1;
  int node = -1;  // OS node it is bound to: another node's copy is of no use
};
/// "w-<model>-<plan>-0of2.n0"
std::string weight_arena_name(const WeightNames& names, const SliceOf& slice);

/// Of (device, inode, size, mtime, ctime) of the model's files: equal means unchanged.
shm::Hash128 source_identity(const model::Model& model);

/// What the arena of a slice must say about itself.
shm::ArenaIdentity weight_identity(const model::Model& model, const WeightNames& names,
                                   const SliceOf& slice, const kernels::Ops& ops);

/// The table of an arena for a rank's slices, at the same offsets as in `map`.
base::Result<shm::ArenaPlan> plan_weight_arena(const engine::WeightMap& map);

}  // namespace worker
