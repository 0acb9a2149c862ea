#include "shm/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "base/cat.h"

namespace shm {

namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<hwloc_topology, DestroyTopology>;

base::Error refused(const std::string& what) {
  return {base::Code::kInvalidArgument,
          base::cat("hwloc does not take ", what, ": ", std::generic_category().message(errno))};
}

base::Result<Hwloc> load(const TopologySource& source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return base::Error{base::Code::kSystem, "hwloc cannot start"};
  }
  Hwloc topology(raw);
  errno = EINVAL;
  if (source.kind == TopologyKind::kXmlFile &&
      hwloc_topology_set_xml(raw, source.text.c_str()) != 0) {
    return refused(base::cat("the topology file ", source.text));
  }
  if (source.kind == TopologyKind::kSynthetic &&
      hwloc_topology_set_synthetic(raw, source.text.c_str()) != 0) {
    return refused(base::cat("the topology '", source.text, "'"));
  }
  // What is forbidden is left out by restrict_to(), which knows more than hwloc and can be tested.
  constexpr unsigned long kEverything =
      HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
  if (source.kind == TopologyKind::kMachine && hwloc_topology_set_flags(raw, kEverything) != 0) {
    return refused("its own flags");
  }
  if (hwloc_topology_load(raw) != 0) return refused("this topology");
  return topology;
}

/// The node a core belongs to. Nodes without CPUs, and second kinds of memory of a socket, span
/// CPUs of others: the tightest span is the core's own, then the smaller OS index.
int home_of(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  int best = -1, best_weight = 0;
  unsigned best_os = 0;
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    if (!hwloc_bitmap_isincluded(cpus, node->cpuset)) continue;
    const int weight = hwloc_bitmap_weight(node->cpuset);
    if (best < 0 || weight < best_weight || (weight == best_weight && node->os_index < best_os)) {
      best = i, best_weight = weight, best_os = node->os_index;
    }
  }
  return best;
}

/// Whether a hybrid processor says that these CPUs are not of its fastest kind.
bool is_efficient(hwloc_topology_t topology, hwloc_const_bitmap_t cpus) {
  const int kinds = hwloc_cpukinds_get_nr(topology, 0);
  const int kind = hwloc_cpukinds_get_by_cpuset(topology, cpus, 0);
  if (kinds < 2 || kind < 0) return false;
  int efficiency = -1;
  hwloc_cpukinds_get_info(topology, static_cast<unsigned>(kind), nullptr, &efficiency, nullptr,
                          nullptr, 0);
  return efficiency >= 0 && efficiency < kinds - 1;
}

/// The cache nearest to memory that serves the core: the third level, else the second.
hwloc_obj_t last_cache_of(hwloc_topology_t topology, hwloc_obj_t core) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(topology, type, core);
    if (cache != nullptr) return cache;
  }
  return nullptr;
}

/// Numbers last-level caches in the order in which cores show them. A cache object of hwloc is the
/// same pointer for all its cores.
class CacheNumbers {
 public:
  explicit CacheNumbers(std::vector<uint64_t>& bytes) : bytes_(bytes) {}
  int number_of(hwloc_obj_t cache) {
    if (cache == nullptr) return -1;
    const auto found = std::find(caches_.begin(), caches_.end(), cache);
    const auto index = static_cast<int>(found - caches_.begin());
    if (found == caches_.end()) {
      caches_.push_back(cache);
      bytes_.push_back(cache->attr->cache.size);
    }
    return index;
  }

 private:
  std::vector<hwloc_obj_t> caches_;
  std::vector<uint64_t>& bytes_;
};

Core to_core(hwloc_topology_t topology, hwloc_obj_t object) {
  Core core;
  const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
  if (package != nullptr) core.package = static_cast<int>(package->logical_index);
  core.efficient = is_efficient(topology, object->cpuset);
  unsigned cpu;
  hwloc_bitmap_foreach_begin(cpu, object->cpuset) core.cpus.push_back(static_cast<int>(cpu));
  hwloc_bitmap_foreach_end();
  return core;
}

/// Relative latencies of nodes, of the matrix that the firmware or the file gives.
void add_distances(hwloc_topology_t topology, Topology& result) {
  hwloc_distances_s* matrix = nullptr;
  unsigned matrices = 1;
  if (hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &matrices, &matrix,
                                  HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
      matrices == 0)
    return;
  const size_t count = result.nodes.size();
  if (matrix->nbobjs == count) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<uint64_t>& row = result.nodes[matrix->objs[i]->logical_index].distances;
      row.resize(count);
      for (size_t j = 0; j < count; ++j)
        row[matrix->objs[j]->logical_index] = matrix->values[i * count + j];
    }
  }
  hwloc_distances_release(topology, matrix);
}

}  // namespace

base::Result<Topology> read_whole_topology(const TopologySource& source) {
  ASSIGN_OR_RETURN(const Hwloc owner, load(source));
  hwloc_topology_t topology = owner.get();
  Topology result;
  result.packages = std::max(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE), 1);
  const int node_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < node_count; ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    result.nodes.push_back({.os_index = static_cast<int>(node->os_index),
                            .memory_bytes = node->attr->numanode.local_memory,
                            .cores = {}});
  }
  // Some virtual machines name no cores: then every CPU is one.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const int core_count = hwloc_get_nbobjs_by_type(topology, type);
  CacheNumbers caches(result.last_cache_bytes);
  for (int i = 0; i < core_count; ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
    const int home = home_of(topology, object->cpuset);
    if (home < 0) continue;
    Core core = to_core(topology, object);
    core.last_cache = caches.number_of(last_cache_of(topology, object));
    result.nodes[static_cast<size_t>(home)].cores.push_back(std::move(core));
  }
  add_distances(topology, result);
  result.description = describe(result);
  return result;
}

base::Result<Topology> read_topology(const TopologySource& source) {
  ASSIGN_OR_RETURN(const Topology whole, read_whole_topology(source));
  const bool is_own = source.kind == TopologyKind::kMachine;
  return restrict_to(whole, is_own ? read_allowed() : AllowedSets{});
}

}  // namespace shm
