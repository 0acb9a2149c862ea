// Whether the memory of a group fits, before any of it is taken: on its nodes, in the file system
// of its arenas, in its cgroup, in the pools of huge pages.
//
// check_room() is a pure function over numbers; read_room() collects them. What is free may be
// taken by somebody else at any time: reserving is what counts, and says so too. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/region.h"

namespace shm {

/// What a rank has yet to reserve.
struct RankNeed {
  int node = -1;  // OS node; -1: anywhere
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t exchange_bytes = 0;
};

struct NodeRoom {
  int node = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;                       // with page cache that can be dropped
  uint64_t huge_pages = 0, huge_pages_free = 0;  // of the size of the weights' hugetlbfs
};

/// A directory for arenas, and what its file system still takes.
struct PlaceRoom {
  std::string directory, mount_point;
  uint64_t device = 0;
  uint64_t total_bytes = 0;  // 0: no limit of its own
  uint64_t free_bytes = 0;
  uint64_t huge_page_bytes = 0;  // of a hugetlbfs, else 0
};

struct CgroupRoom {
  std::string directory;
  uint64_t limit_bytes = 0;
  uint64_t free_bytes = 0;  // with page cache that is not in use
};

struct RoomFacts {
  std::vector<NodeRoom> nodes;
  PlaceRoom weights, others;  // for weights; for KV cache and exchange
  std::optional<CgroupRoom> cgroup;
  uint64_t kept_bytes = 0;  // of other arenas that were kept and nobody uses: of the caller
};

struct RoomQuery {
  std::string weights_directory, others_directory;
  std::string root = {};  // where / is, for /proc and /sys; directories are real
  std::string mounts = "/proc/self/mountinfo";
};
/// What cannot be read is no limit. Errors: kSystem for a directory that is not there.
base::Result<RoomFacts> read_room(const RoomQuery& query);

/// Errors: kNoSpace with needed and free bytes and the line that cures it; kInvalidArgument for
/// pages that the directory cannot give.
base::Status check_room(const RoomFacts& facts, std::span<const RankNeed> needs, HugePages pages);

/// "412.0 GiB", "52.3 MiB"
std::string memory_text(uint64_t bytes);

}  // namespace shm
