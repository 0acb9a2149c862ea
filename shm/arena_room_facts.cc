// Where the numbers of arena_room.h come from.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/cat.h"
#include "shm/arena_room.h"
#include "shm/cgroup.h"
#include "shm/file.h"
#include "shm/mounts.h"
#include "shm/system_text.h"

namespace shm {

namespace {

/// A field of a node's meminfo, whose lines are "Node 0 MemFree:  123 kB".
uint64_t node_bytes(std::string_view text, int node, std::string_view name) {
  return kilobytes_of(text, base::cat("Node ", node, " ", name));
}

/// Page cache that no shared memory is part of goes when somebody needs the memory.
NodeRoom read_node(const std::string& directory, int node, uint64_t huge_page_bytes) {
  const std::string text = text_of(directory + "/meminfo");
  NodeRoom room{.node = node, .total_bytes = node_bytes(text, node, "MemTotal")};
  for (const char* const name : {"MemFree", "Active(file)", "Inactive(file)", "SReclaimable"})
    room.free_bytes += node_bytes(text, node, name);
  if (huge_page_bytes > 0) {
    const std::string pool =
        base::cat(directory, "/hugepages/hugepages-", huge_page_bytes / 1024, "kB/");
    room.huge_pages = number_of(first_line(pool + "nr_hugepages"));
    room.huge_pages_free = number_of(first_line(pool + "free_hugepages"));
  }
  return room;
}

std::vector<NodeRoom> read_nodes(const std::string& root, uint64_t huge_page_bytes) {
  std::vector<NodeRoom> nodes;
  const auto allowed = read_allowed(root).nodes;
  const std::string directory = root + "/sys/devices/system/node/";
  for (const std::string& name : names_in(directory)) {
    if (!name.starts_with("node") || name.size() < 5 || name[4] < '0' || name[4] > '9') continue;
    const auto node = static_cast<int>(number_of(name.substr(4)));
    if (allowed && std::find(allowed->begin(), allowed->end(), node) == allowed->end()) continue;
    const NodeRoom room = read_node(directory + name, node, huge_page_bytes);
    if (room.total_bytes > 0) nodes.push_back(room);
  }
  return nodes;
}

base::Result<PlaceRoom> read_place(const std::string& directory, const std::string& mounts) {
  struct stat status = {};
  struct statvfs space = {};
  if (stat(directory.c_str(), &status) != 0 || statvfs(directory.c_str(), &space) != 0)
    return system_error("cannot look at", directory, errno);
  PlaceRoom place{.directory = directory,
                  .mount_point = directory,
                  .device = static_cast<uint64_t>(status.st_dev),
                  .total_bytes = static_cast<uint64_t>(space.f_blocks) * space.f_frsize,
                  .free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_frsize};
  const auto mount = mount_of(mounts, directory);
  if (!mount) return place;
  place.mount_point = mount->point;
  if (mount->type == "hugetlbfs") place.huge_page_bytes = space.f_bsize;
  return place;
}

/// The value behind "name " at the start of a line.
uint64_t counter_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ')
      return number_of(line.substr(name.size() + 1));
  }
  return 0;
}

/// A limit and what of it is used, in version 2 or 1. Nothing: no limit.
std::optional<CgroupRoom> read_group(const std::string& group) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes a huge number
  std::string limit = first_line(group + "/memory.max");
  const bool second = !limit.empty();
  if (!second) limit = first_line(group + "/memory.limit_in_bytes");
  if (limit.empty() || limit == "max" || number_of(limit) >= kNoLimit) return {};
  const uint64_t used =
      number_of(first_line(group + (second ? "/memory.current" : "/memory.usage_in_bytes")));
  // Page cache goes when the group comes to its limit, also what was read more than once.
  const std::string counters = text_of(group + "/memory.stat");
  uint64_t cache = 0;
  for (const char* const name : {"inactive_file", "active_file"})
    cache += counter_of(counters, second ? name : base::cat("total_", name));
  CgroupRoom room{.directory = group, .limit_bytes = number_of(limit)};
  const uint64_t kept = used - std::min(used, cache);
  room.free_bytes = room.limit_bytes - std::min(room.limit_bytes, kept);
  return room;
}

std::optional<CgroupRoom> read_cgroup(const std::string& root) {
  std::optional<CgroupRoom> tightest;
  for (const std::string& group : cgroup_directories("memory", root)) {
    auto room = read_group(group);
    if (room && (!tightest || room->free_bytes < tightest->free_bytes)) tightest = std::move(room);
  }
  return tightest;
}

}  // namespace

base::Result<RoomFacts> read_room(const RoomQuery& query) {
  RoomFacts facts;
  ASSIGN_OR_RETURN(facts.weights, read_place(query.weights_directory, query.mounts));
  ASSIGN_OR_RETURN(facts.others, read_place(query.others_directory, query.mounts));
  facts.nodes = read_nodes(query.root, facts.weights.huge_page_bytes);
  facts.cgroup = read_cgroup(query.root);
  return facts;
}

}  // namespace shm
