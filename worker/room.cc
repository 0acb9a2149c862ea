#include "worker/room.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/cat.h"
#include "shm/arena_dir.h"
#include "shm/shm_exchange.h"
#include "shm/system_text.h"

namespace worker {

namespace {

using Listings = std::vector<shm::ArenaListing>;

bool is_ready(const shm::ArenaListing& arena) {
  return arena.damage.empty() && arena.state == shm::ArenaState::kReady;
}

/// Bytes of the arena of a slice that need not be reserved any more.
uint64_t weights_there(const Listings& listings, const std::string& name,
                       const shm::ArenaIdentity& wanted, const RoomQuestion& question) {
  for (const shm::ArenaListing& arena : listings) {
    if (arena.name != name) continue;
    const bool same = arena.damage.empty() && arena.identity == wanted;
    if (!question.named_weights) return same && is_ready(arena) ? arena.allocated_bytes : 0;
    // In use with the same content, or being loaded: shared. Unused: made anew in its place.
    return same || !arena.in_use ? arena.allocated_bytes : 0;
  }
  return 0;
}

uint64_t allocated(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

uint64_t without(uint64_t bytes, uint64_t there) {
  return bytes - std::min(bytes, there);
}

/// Removes what is of no use to anybody; of what this group could attach to its ranks decide.
void remove_leftovers(const std::string& directory, const std::string& own_prefix) {
  for (const shm::ArenaListing& arena : shm::list_arenas(directory)) {
    if (arena.in_use || (is_ready(arena) && (arena.keep || arena.name.starts_with(own_prefix))))
      continue;
    [[maybe_unused]] const auto removed = shm::remove_arena(directory, arena.name);
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
  return base::cat("--mlock: a rank has ", shm::size_text(most), ", and a process may lock ",
                   shm::size_text(limit.rlim_cur),
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
    need.kv_bytes =
        engine::kv_pool_bytes(group.model.spec, share, group.kv_type, group.shape.kv_block_count);
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
  const Listings listings = shm::list_arenas(question.weights_directory);
  const auto count = static_cast<int>(needs.size());
  for (int rank = 0; rank < count; rank++) {
    shm::RankNeed& need = needs[static_cast<size_t>(rank)];
    const SliceOf slice = {rank, count, need.node};
    need.weight_bytes = without(
        need.weight_bytes,
        weights_there(listings, weight_arena_name(group.names, slice),
                      weight_identity(group.model, group.names, slice, group.ops), question));
    need.kv_bytes =
        without(need.kv_bytes, allocated(base::cat(question.group_directory, "/kv.", rank)));
  }
  return needs;
}

base::Result<std::string> check_room(const GroupMemory& group, const RoomQuestion& question) {
  remove_leftovers(question.weights_directory, group.names.prefix);
  ASSIGN_OR_RETURN(shm::RoomFacts facts,
                   shm::read_room({.weights_directory = question.weights_directory,
                                   .others_directory = question.group_directory}));
  for (const shm::ArenaListing& arena : shm::list_arenas(question.weights_directory)) {
    if (!arena.in_use && !arena.name.starts_with(group.names.prefix))
      facts.kept_bytes += arena.allocated_bytes;
  }
  RETURN_IF_ERROR(shm::check_room(facts, memory_needs(group, question), question.huge_pages));
  return question.mlock ? memlock_warning(full_needs(group, question)) : std::string();
}

}  // namespace worker
