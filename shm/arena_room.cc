#include "shm/arena_room.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/cat.h"

namespace shm {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr const char* kSmallerContext = "fewer --ctx positions or --parallel sequences";

struct Sum {
  uint64_t weights = 0, kv = 0, exchange = 0;
  uint64_t others() const { return kv + exchange; }
  uint64_t all() const { return weights + others(); }
  void add(const RankNeed& need) {
    weights += need.weight_bytes;
    kv += need.kv_bytes;
    exchange += need.exchange_bytes;
  }
};

/// " (398.0 GiB weights, 13.9 GiB KV cache, 51.0 MiB exchange)"
std::string parts(const Sum& sum) {
  return base::cat(" (", memory_text(sum.weights), " weights, ", memory_text(sum.kv), " KV cache, ",
                   memory_text(sum.exchange), " exchange)");
}

/// What must stay free on a node: its last pages are the kernel's, and asking for them ends in its
/// killer, not in an error.
uint64_t reserve_of(uint64_t total) {
  return std::min(kGiB, total / 64);
}

base::Error no_room(std::string message) {
  return {base::Code::kNoSpace, std::move(message)};
}

std::string page_name(uint64_t page_bytes) {
  return page_bytes >= kGiB ? base::cat(page_bytes / kGiB, " GiB")
                            : base::cat(page_bytes / kMiB, " MiB");
}

/// The needs by node; key -1: anywhere.
std::map<int, Sum> by_node(std::span<const RankNeed> needs) {
  std::map<int, Sum> sums;
  for (const RankNeed& need : needs) sums[need.node].add(need);
  return sums;
}

/// The node, or all of them as one for -1. Nothing for a node that nobody knows.
std::optional<NodeRoom> room_on(const RoomFacts& facts, int node) {
  std::optional<NodeRoom> room;
  for (const NodeRoom& one : facts.nodes) {
    if (node >= 0 && one.node != node) continue;
    if (!room) room = {.node = node};
    room->total_bytes += one.total_bytes;
    room->free_bytes += one.free_bytes;
    room->huge_pages += one.huge_pages;
    room->huge_pages_free += one.huge_pages_free;
  }
  return room;
}

std::string on_node(int node) {
  return node < 0 ? "in all" : base::cat("on node ", node);
}

base::Status check_page_size(const PlaceRoom& place, HugePages pages) {
  if (pages == HugePages::kOff && place.huge_page_bytes > 0) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("--huge-pages off: ", place.directory,
                  " is a hugetlbfs, which has only pages of ", page_name(place.huge_page_bytes),
                  "; take an --arena-dir on a tmpfs")};
  }
  if (pages != HugePages::k2M && pages != HugePages::k1G) return {};
  const uint64_t wanted = pages == HugePages::k2M ? 2 * kMiB : kGiB;
  if (place.huge_page_bytes == wanted) return {};
  const char* name = pages == HugePages::k2M ? "2M" : "1G";
  return base::Error{
      base::Code::kInvalidArgument,
      base::cat("--huge-pages needs pages of ", page_name(wanted), ", and ", place.directory,
                place.huge_page_bytes > 0
                    ? base::cat(" has pages of ", page_name(place.huge_page_bytes))
                    : std::string(" is no hugetlbfs"),
                "; mount one: mkdir -p /mnt/huge-", name,
                " && mount -t hugetlbfs -o pagesize=", name, ",uid=", geteuid(),
                ",mode=0700 none /mnt/huge-", name, ", and say --arena-dir /mnt/huge-", name)};
}

base::Status check_huge_pools(const RoomFacts& facts, std::span<const RankNeed> needs) {
  const uint64_t page = facts.weights.huge_page_bytes;
  std::map<int, uint64_t> pages;
  for (const RankNeed& need : needs) pages[need.node] += (need.weight_bytes + page - 1) / page;
  std::string lacks, cures;
  for (const auto& [node, count] : pages) {
    const auto room = room_on(facts, node);
    if (!room || count <= room->huge_pages_free) continue;
    lacks += base::cat(lacks.empty() ? "" : ", ", count, " ", on_node(node), " where ",
                       room->huge_pages_free, " are free");
    const std::string pool = node < 0 ? "kernel/mm" : base::cat("devices/system/node/node", node);
    cures += base::cat(cures.empty() ? "" : " && ", "echo ",
                       room->huge_pages + count - room->huge_pages_free, " > /sys/", pool,
                       "/hugepages/hugepages-", page / 1024, "kB/nr_hugepages");
  }
  if (lacks.empty()) return {};
  return no_room(base::cat("the weights need huge pages of ", page_name(page), ": ", lacks,
                           "; make more, best at boot: ", cures,
                           "; or take an --arena-dir on a tmpfs"));
}

base::Status check_nodes(const RoomFacts& facts, std::span<const RankNeed> needs) {
  std::string lacks;
  for (auto& [node, sum] : by_node(needs)) {
    Sum need = sum;
    if (facts.weights.huge_page_bytes > 0) need.weights = 0;  // those have their own pool
    const auto room = room_on(facts, node);
    if (!room || need.all() + reserve_of(room->total_bytes) <= room->free_bytes) continue;
    lacks += base::cat(lacks.empty() ? "" : ", and ", memory_text(need.all()), " ", on_node(node),
                       parts(need), ", ", memory_text(room->free_bytes), " free, of which ",
                       memory_text(reserve_of(room->total_bytes)), " stay for the system");
  }
  if (lacks.empty()) return {};
  return no_room(base::cat("the model needs ", lacks,
                           "; end what uses the memory (numactl "
                           "--hardware shows the nodes), use more nodes, or ",
                           kSmallerContext));
}

base::Status check_place(const RoomFacts& facts, const PlaceRoom& place, const Sum& need) {
  if (place.total_bytes == 0 || need.all() <= place.free_bytes) return {};
  const std::string size =
      base::cat((place.total_bytes - place.free_bytes + need.all()) / kMiB + 1, "m");
  std::string kept;
  if (facts.kept_bytes > 0) {
    kept = base::cat("; numoe shm rm frees ", memory_text(facts.kept_bytes),
                     " that were kept and "
                     "nobody uses");
  }
  return no_room(base::cat(
      "the model needs ", memory_text(need.all()), " in ", place.directory, parts(need), ", ",
      memory_text(place.free_bytes), " free of ", memory_text(place.total_bytes),
      "; give it more: mount -o remount,size=", size, " ", place.mount_point,
      " (docker run --shm-size=", size, "), take another --arena-dir, or ", kSmallerContext, kept));
}

base::Status check_cgroup(const RoomFacts& facts, Sum need) {
  if (!facts.cgroup) return {};
  if (facts.weights.huge_page_bytes > 0) need.weights = 0;
  if (need.all() <= facts.cgroup->free_bytes) return {};
  return no_room(base::cat(
      "the model needs ", memory_text(need.all()), parts(need), ", the cgroup's memory limit of ",
      memory_text(facts.cgroup->limit_bytes), " leaves ", memory_text(facts.cgroup->free_bytes),
      "; raise memory.max in ", facts.cgroup->directory,
      " (docker run --memory, MemoryMax= of a unit), or ", kSmallerContext));
}

}  // namespace

std::string memory_text(uint64_t bytes) {
  const bool small = bytes > 0 && bytes < kMiB;
  const uint64_t unit = bytes >= kGiB ? kGiB : small ? 1024 : kMiB;
  // Tenths without an overflow, rounded.
  const uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
  return base::cat(tenths / 10, ".", tenths % 10, unit == kGiB ? " GiB" : small ? " KiB" : " MiB");
}

base::Status check_room(const RoomFacts& facts, std::span<const RankNeed> needs, HugePages pages) {
  RETURN_IF_ERROR(check_page_size(facts.weights, pages));
  if (facts.weights.huge_page_bytes > 0) RETURN_IF_ERROR(check_huge_pools(facts, needs));
  Sum all;
  for (const RankNeed& need : needs) all.add(need);
  if (facts.weights.device == facts.others.device) {
    RETURN_IF_ERROR(check_place(facts, facts.weights, all));
  } else {
    RETURN_IF_ERROR(check_place(facts, facts.weights, {.weights = all.weights}));
    RETURN_IF_ERROR(check_place(facts, facts.others, {.kv = all.kv, .exchange = all.exchange}));
  }
  RETURN_IF_ERROR(check_nodes(facts, needs));
  return check_cgroup(facts, all);
}

}  // namespace shm
