// Whether the memory of a whole group fits on this host, asked before any process is started.
//
// Looks at files and numbers of the system; removes arenas that nobody uses and nobody wants kept,
// since their memory is as good as free. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/rank_engine.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/arena_room.h"
#include "worker/weight_names.h"

namespace worker {

/// What a rank has yet to reserve, and the name of its arena of weights, which several may share.
struct ArenaNeed {
  std::string arena;
  shm::RankNeed need;
};

/// Where the ranks of a group will be.
struct RoomQuestion {
  std::vector<int> os_nodes = {};  // by rank; -1: anywhere
  std::string weights_directory;   // of named arenas
  std::string group_directory;     // of KV cache and exchange
  bool named_weights = false;      // they take the place of unused ones of the same name
  shm::HugePages huge_pages = shm::HugePages::kAuto;
  bool mlock = false;
  std::vector<ArenaNeed> others = {};  // of other groups that start at the same time
};

/// What they will hold. Borrows everything.
struct GroupMemory {
  const model::Model& model;
  const plan::Plan& plan;
  const kernels::Ops& ops;
  const WeightNames& names;
  kernels::KvType kv_type;
  const engine::RunnerShape& shape;
};

/// What each rank has yet to reserve: nothing for weights that are there already.
std::vector<shm::RankNeed> memory_needs(const GroupMemory& group, const RoomQuestion& question);

/// The same with the names of their arenas.
std::vector<ArenaNeed> arena_needs(const GroupMemory& group, const RoomQuestion& question);

/// Of this group and of question.others: what lies under one name is reserved once.
std::vector<shm::RankNeed> all_needs(const GroupMemory& group, const RoomQuestion& question);

/// A warning for people, or nothing. Errors: as shm::check_room.
base::Result<std::string> check_room(const GroupMemory& group, const RoomQuestion& question);

}  // namespace worker
