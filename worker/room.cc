#include "worker/room.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/cat.h"
#include "shm/arena_dir.h"
#include "shm/shm_exchange.h"
#include "shm/system_text.h"

namespace worker {

namespace {

bool is_ready(const shm::ArenaListing& arena) {
  return arena.damage.empty() && arena.state == shm::ArenaState::kReady;
}

/// The arenas of a group, by name.
using Wanted = std::map<std::string, shm::ArenaIdentity>;

Wanted wanted_arenas(const GroupMemory& group, const RoomQuestion& question) {
  Wanted wanted;
  const auto count = static_cast<int>(question.os_nodes.size());
  for (int rank = 0; rank < count; rank++) {
    const SliceOf slice = {rank, count, question.os_nodes[static_cast<size_t>(rank)]};
    wanted[weight_arena_name(group.names, slice)] =
        weight_identity(group.model, group.names, slice, group.ops);
  }
  return wanted;
}

bool is_of_others(const std::string& arena, const RoomQuestion& question) {
  return std::any_of(question.others.begin(), question.others.end(),
                     [&](const ArenaNeed& other) { return other.arena == arena; });
}

/// Whether a rank will use what is there: attach to it, wait for it, or put its own in its place.
bool is_of_use(const shm::ArenaListing& arena, const Wanted& wanted, const RoomQuestion& question) {
  const auto own = wanted.find(arena.name);
  // What is right for the one group is right for the other: names tell plan and node.
  if (own == wanted.end() && is_of_others(arena.name, question)) return true;
  if (own == wanted.end()) return false;
  const bool same = arena.damage.empty() && arena.identity == own->second;
  if (!question.named_weights) return same && is_ready(arena);
  return same || !arena.in_use;
}

uint64_t allocated(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

uint64_t without(uint64_t bytes, uint64_t there) {
  return bytes - std::min(bytes, there);
}

/// Removes what nobody uses, nobody wants kept, and this group cannot use.
void remove_leftovers(const Wanted& wanted, const RoomQuestion& question) {
  for (const shm::ArenaListing& arena : shm::list_arenas(question.weights_directory)) {
    const bool stays = is_ready(arena) && (arena.keep || is_of_use(arena, wanted, question));
    if (arena.in_use || stays) continue;
    [[maybe_unused]] const auto removed = shm::remove_arena(question.weights_directory, arena.name);
  }
}

/// One sentence where a process may not lock what a rank holds; ranks go on without.
std::string memlock_warning(const std::vector<shm::RankNeed>& full) {
  constexpr uint64_t kIpcLock = uint64_t{1} << 14;  // CAP_IPC_LOCK, linux/capability.h
  uint64_t capabilities = 0;
  const std::string text = shm::field_of(shm::text_of("/proc/self/status"), "CapEff");
  for (const char c : text)
    capabilities = capabilities * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  if ((capabilities & kIpcLock) != 0) return {};
  uint64_t most = 0;
  for (const shm::RankNeed& need : full) most = std::max(most, need.weight_bytes + need.kv_bytes);
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur >= most) return {};
  return base::cat("--mlock: a rank has ", shm::memory_text(most), ", and a process may lock ",
                   shm::memory_text(limit.rlim_cur),
                   ", so it is not locked; raise the limit: ulimit -l unlimited, "
                   "LimitMEMLOCK=infinity in a unit, docker run --ulimit memlock=-1");
}

/// As if nothing were there yet.
std::vector<shm::RankNeed> full_needs(const GroupMemory& group, const RoomQuestion& question) {
  std::vector<shm::RankNeed> needs;
  for (size_t rank = 0; rank < group.plan.ranks.size(); rank++) {
    const plan::RankShare& share = group.plan.ranks[rank];
    shm::RankNeed need{.node = question.os_nodes[rank]};
    const auto arena = plan_weight_arena(engine::map_weights(group.model, share, group.ops));
    need.weight_bytes = arena.ok() ? arena->file_bytes() : 0;
    need.kv_bytes = engine::kv_pool_bytes(group.model.spec, share, group.kv_type,
                                          {group.shape.kv_block_count, group.shape.kv_near_count});
    if (group.plan.ranks.size() > 1) {
      need.exchange_bytes = shm::ShmExchange::bytes_per_rank(
          {.ranks = group.plan.rank_count(),
           .slice_bytes_max =
               engine::slice_bytes_max(group.model.spec, group.plan, group.shape.columns_max)});
    }
    needs.push_back(need);
  }
  return needs;
}

}  // namespace

std::vector<shm::RankNeed> memory_needs(const GroupMemory& group, const RoomQuestion& question) {
  std::vector<shm::RankNeed> needs = full_needs(group, question);
  const Wanted wanted = wanted_arenas(group, question);
  const std::vector<shm::ArenaListing> arenas = shm::list_arenas(question.weights_directory);
  const auto count = static_cast<int>(needs.size());
  for (int rank = 0; rank < count; rank++) {
    shm::RankNeed& need = needs[static_cast<size_t>(rank)];
    const std::string name = weight_arena_name(group.names, {rank, count, need.node});
    for (const shm::ArenaListing& arena : arenas) {
      if (arena.name == name && is_of_use(arena, wanted, question))
        need.weight_bytes = without(need.weight_bytes, arena.allocated_bytes);
    }
    need.kv_bytes =
        without(need.kv_bytes, allocated(base::cat(question.group_directory, "/kv.", rank)));
  }
  return needs;
}

std::vector<ArenaNeed> arena_needs(const GroupMemory& group, const RoomQuestion& question) {
  const std::vector<shm::RankNeed> needs = memory_needs(group, question);
  std::vector<ArenaNeed> named;
  const auto count = static_cast<int>(needs.size());
  for (int rank = 0; rank < count; rank++) {
    const shm::RankNeed& need = needs[static_cast<size_t>(rank)];
    named.push_back({weight_arena_name(group.names, {rank, count, need.node}), need});
  }
  return named;
}

std::vector<shm::RankNeed> all_needs(const GroupMemory& group, const RoomQuestion& question) {
  std::vector<ArenaNeed> named = arena_needs(group, question);
  named.insert(named.end(), question.others.begin(), question.others.end());
  std::vector<shm::RankNeed> needs;
  std::set<std::string> counted;
  for (const ArenaNeed& own : named) {
    needs.push_back(own.need);
    const bool shared = question.named_weights && !counted.insert(own.arena).second;
    if (shared) needs.back().weight_bytes = 0;
  }
  return needs;
}

base::Result<std::string> check_room(const GroupMemory& group, const RoomQuestion& question) {
  const Wanted wanted = wanted_arenas(group, question);
  remove_leftovers(wanted, question);
  ASSIGN_OR_RETURN(shm::RoomFacts facts,
                   shm::read_room({.weights_directory = question.weights_directory,
                                   .others_directory = question.group_directory}));
  for (const shm::ArenaListing& arena : shm::list_arenas(question.weights_directory)) {
    if (!arena.in_use && !is_of_use(arena, wanted, question))
      facts.kept_bytes += arena.allocated_bytes;
  }
  RETURN_IF_ERROR(shm::check_room(facts, all_needs(group, question), question.huge_pages));
  return question.mlock ? memlock_warning(full_needs(group, question)) : std::string();
}

}  // namespace worker
