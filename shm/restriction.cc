// The part of shm/topology.h that says what of a machine may be used.
#include <algorithm>
#include <optional>
#include <set>

#include "base/cat.h"
#include "shm/topology.h"

namespace shm {

namespace {

bool contains(const std::optional<std::vector<int>>& numbers, int number) {
  return !numbers || std::find(numbers->begin(), numbers->end(), number) != numbers->end();
}

/// Synthetic machines may tell no memory at all: then nodes have some.
bool lacks_memory(const Topology& whole, const Node& node) {
  return node.memory_bytes == 0 &&
         std::any_of(whole.nodes.begin(), whole.nodes.end(),
                     [](const Node& other) { return other.memory_bytes > 0; });
}

/// Cores with the CPUs that are allowed.
std::vector<Core> allowed_cores(const Node& node, const AllowedSets& allowed) {
  std::vector<Core> cores;
  for (Core core : node.cores) {
    std::erase_if(core.cpus, [&](int cpu) { return !contains(allowed.cpus, cpu); });
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  return cores;
}

/// Index into `kept`, which is not empty, of the node that is nearest to `from`; the first of
/// several. Indices are those of the whole machine.
size_t nearest(const Topology& whole, size_t from, const std::vector<size_t>& kept) {
  const std::vector<uint64_t>& distances = whole.nodes[from].distances;
  if (distances.size() != whole.nodes.size()) return 0;
  const auto found = std::min_element(
      kept.begin(), kept.end(), [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  return static_cast<size_t>(found - kept.begin());
}

/// Leaves only caches that a core has, with new numbers in the order of cores.
void renumber_caches(Topology& topology) {
  std::vector<uint64_t> bytes;
  std::vector<int> renumbered(topology.last_cache_bytes.size(), -1);
  for (Node& node : topology.nodes) {
    for (Core& core : node.cores) {
      if (core.last_cache < 0) continue;
      const auto old = static_cast<size_t>(core.last_cache);
      if (renumbered[old] < 0) {
        renumbered[old] = static_cast<int>(bytes.size());
        bytes.push_back(topology.last_cache_bytes[old]);
      }
      core.last_cache = renumbered[old];
    }
  }
  topology.last_cache_bytes = std::move(bytes);
}

int count_packages(const Topology& topology) {
  std::set<int> packages;
  for (const Node& node : topology.nodes)
    for (const Core& core : node.cores) packages.insert(core.package);
  return std::max(static_cast<int>(packages.size()), 1);
}

std::string counted(size_t count, const char* what) {
  return base::cat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string describe(const Topology& topology) {
  size_t cores = 0;
  for (const Node& node : topology.nodes) cores += node.cores.size();
  return base::cat(counted(static_cast<size_t>(topology.packages), "package"), ", ",
                   counted(topology.nodes.size(), "NUMA node"), ", ", counted(cores, "core"));
}

Topology restrict_to(const Topology& whole, const AllowedSets& allowed) {
  Topology result;
  result.last_cache_bytes = whole.last_cache_bytes;
  std::vector<size_t> kept;  // of `whole`, in the order of `result`
  for (size_t i = 0; i < whole.nodes.size(); ++i) {
    const Node& node = whole.nodes[i];
    if (lacks_memory(whole, node) || !contains(allowed.nodes, node.os_index)) continue;
    kept.push_back(i);
    result.nodes.push_back({.os_index = node.os_index,
                            .memory_bytes = node.memory_bytes,
                            .cores = allowed_cores(node, allowed)});
  }
  if (kept.empty()) return result;
  for (size_t i = 0; i < kept.size(); ++i) {
    const std::vector<uint64_t>& distances = whole.nodes[kept[i]].distances;
    if (distances.size() != whole.nodes.size()) continue;
    for (const size_t to : kept) result.nodes[i].distances.push_back(distances[to]);
  }
  const auto adopt_cores_of = [&](size_t index) {
    std::vector<Core>& home = result.nodes[nearest(whole, index, kept)].cores;
    for (Core& core : allowed_cores(whole.nodes[index], allowed)) home.push_back(std::move(core));
  };
  for (size_t i = 0; i < whole.nodes.size(); ++i)
    if (lacks_memory(whole, whole.nodes[i])) adopt_cores_of(i);
  const bool has_cores = std::any_of(result.nodes.begin(), result.nodes.end(),
                                     [](const Node& node) { return !node.cores.empty(); });
  for (size_t i = 0; !has_cores && i < whole.nodes.size(); ++i)
    if (!lacks_memory(whole, whole.nodes[i])) adopt_cores_of(i);
  renumber_caches(result);
  result.packages = count_packages(result);
  result.description = describe(result);
  return result;
}

}  // namespace shm
