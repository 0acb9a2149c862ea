// The part of shm/topology.h that needs no hwloc: which CPUs go to which rank.
#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "shm/topology.h"

namespace shm {

namespace {

/// Slow cores of a hybrid processor compute if that is asked for, or where there are no others.
bool uses_efficient_cores(const Topology& topology, const PlacementOptions& options) {
  if (options.efficient_cores) return true;
  for (const Node& node : topology.nodes)
    for (const Core& core : node.cores)
      if (!core.efficient) return false;
  return true;
}

/// CPUs of a node in the order in which threads should take them: one of every core first.
std::vector<int> usable_cpus(const Node& node, const PlacementOptions& options, bool efficient) {
  std::vector<int> cpus;
  size_t threads_of_a_core = 1;
  for (size_t thread = 0; thread < threads_of_a_core; ++thread) {
    for (const Core& core : node.cores) {
      if (core.efficient && !efficient) continue;
      if (thread < core.cpus.size()) cpus.push_back(core.cpus[thread]);
      if (options.second_threads) {
        threads_of_a_core = std::max(threads_of_a_core, core.cpus.size());
      }
    }
  }
  return cpus;
}

struct UsableNode {
  int os_index;
  std::vector<int> cpus;
};

std::vector<UsableNode> nodes_with_cpus(const Topology& topology, const PlacementOptions& options) {
  std::vector<UsableNode> nodes;
  const bool efficient = uses_efficient_cores(topology, options);
  for (const Node& node : topology.nodes) {
    std::vector<int> cpus = usable_cpus(node, options, efficient);
    if (!cpus.empty()) nodes.push_back({node.os_index, std::move(cpus)});
  }
  return nodes;
}

/// The front core of the first node is left to the broker only where that still leaves most.
void reserve_for_broker(std::vector<UsableNode>& nodes, int cores) {
  const auto reserve = static_cast<size_t>(std::max(cores, 0));
  std::vector<int>& cpus = nodes.front().cpus;
  if (cpus.size() >= 4 * reserve)
    cpus.erase(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(reserve));
}

/// Rank `index` of `count` ranks that share a node: its run of the node's CPUs, at least one.
std::vector<int> share_of(const std::vector<int>& cpus, size_t index, size_t count) {
  const size_t begin = index * cpus.size() / count;
  const size_t end = (index + 1) * cpus.size() / count;
  if (begin == end) return {cpus[begin % cpus.size()]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin),
          cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// All CPUs that each of `ranks` ranks can have.
std::vector<RankPlacement> deal_nodes(const std::vector<UsableNode>& nodes, size_t ranks,
                                      bool simulate) {
  std::vector<RankPlacement> dealt;
  for (size_t rank = 0; rank < ranks; ++rank) {
    RankPlacement own;
    if (!simulate || nodes.size() >= ranks) {
      own.cpus = nodes[rank].cpus;
      own.os_node = simulate ? -1 : nodes[rank].os_index;
    } else {
      // Ranks [first, last) are those of this rank's node.
      const size_t node = rank * nodes.size() / ranks;
      const size_t first = (node * ranks + nodes.size() - 1) / nodes.size();
      const size_t last = ((node + 1) * ranks + nodes.size() - 1) / nodes.size();
      own.cpus = share_of(nodes[node].cpus, rank - first, last - first);
    }
    dealt.push_back(std::move(own));
  }
  return dealt;
}

/// Whole CPUs of time that compute threads may take: all, but for half a CPU for the broker where
/// there are enough; threads that meet must not be throttled by its little work.
double granted_threads(const PlacementOptions& options) {
  const bool leaves_some = options.reserve_cores > 0 && options.cpu_quota >= 4;
  return std::max(1.0, std::floor(options.cpu_quota - (leaves_some ? 0.5 : 0)));
}

/// Threads of each rank: as many as asked for, or every CPU, less what the quota does not grant;
/// that is taken from the ranks that have most, down to one each.
std::vector<size_t> deal_threads(const std::vector<RankPlacement>& ranks,
                                 const PlacementOptions& options) {
  std::vector<size_t> threads;
  size_t all = 0;
  for (const RankPlacement& rank : ranks) {
    const size_t own = options.threads_per_rank > 0 ? static_cast<size_t>(options.threads_per_rank)
                                                    : rank.cpus.size();
    threads.push_back(own);
    all += own;
  }
  if (options.threads_per_rank > 0 || options.cpu_quota <= 0) return threads;
  const double granted = granted_threads(options);
  for (; static_cast<double>(all) > granted; --all) {
    const auto most = std::max_element(threads.rbegin(), threads.rend());
    if (*most == 1) break;
    --*most;
  }
  return threads;
}

/// Cuts or wraps a rank's CPUs to its number of threads.
void fit_threads(std::vector<int>& cpus, size_t wanted) {
  const size_t own = cpus.size();
  for (size_t i = own; i < wanted; ++i) cpus.push_back(cpus[i % own]);
  cpus.resize(wanted);
}

void note_oversubscription(Placement& placement, double quota) {
  std::vector<int> cpus;
  for (const RankPlacement& rank : placement.ranks) {
    cpus.insert(cpus.end(), rank.cpus.begin(), rank.cpus.end());
  }
  const size_t threads = cpus.size();
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  if (cpus.size() < threads) {
    placement.oversubscribed = true;
    placement.note = base::cat("oversubscribed: ", threads, " threads on ", cpus.size(), " cores");
  } else if (quota > 0 && static_cast<double>(threads) > quota) {
    placement.oversubscribed = true;
    placement.note = base::cat("oversubscribed: ", threads, " threads, but the cgroup grants ",
                               quota, " CPUs of time; use fewer threads or nodes");
  }
}

std::vector<double> shares_of(const Placement& placement) {
  std::vector<double> threads;
  for (const RankPlacement& rank : placement.ranks)
    threads.push_back(static_cast<double>(rank.cpus.size()));
  const auto [least, most] = std::minmax_element(threads.begin(), threads.end());
  // Threads that wait for each other's CPU are no measure of speed.
  if (placement.oversubscribed || *most <= 1.5 * *least) return {};
  return threads;
}

std::string listed(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += base::cat(text.empty() ? "" : ", ", part);
  return text;
}

/// What of the machine is unlike what people expect: uneven nodes, nodes without a rank, one CPU.
std::vector<std::string> remarks_of(const Topology& topology, const std::vector<UsableNode>& nodes,
                                    const PlacementOptions& options) {
  std::vector<std::string> remarks, memory_only, counts;
  for (const Node& node : topology.nodes)
    if (node.cores.empty()) memory_only.push_back(base::cat(node.os_index));
  if (!memory_only.empty())
    remarks.push_back(base::cat("no rank on NUMA node ", listed(memory_only),
                                ": memory without a CPU that this process may use"));
  bool even = true;
  for (const UsableNode& node : nodes) {
    even = even && node.cpus.size() == nodes.front().cpus.size();
    counts.push_back(base::cat(node.cpus.size(), " on node ", node.os_index));
  }
  if (!even)
    remarks.push_back(base::cat("uneven NUMA nodes: CPUs to compute with are ", listed(counts)));
  if (nodes.size() == 1 && nodes.front().cpus.size() == 1 && options.reserve_cores > 0)
    remarks.push_back(base::cat("CPU ", nodes.front().cpus.front(),
                                " is all there is: the broker shares it with the compute thread"));
  return remarks;
}

base::Error invalid(const std::string& sentence) {
  return {base::Code::kInvalidArgument, sentence};
}

}  // namespace

int usable_nodes(const Topology& topology, const PlacementOptions& options) {
  return static_cast<int>(nodes_with_cpus(topology, options).size());
}

base::Result<Placement> cpus_for_ranks(const Topology& topology, const PlacementOptions& options) {
  if (options.ranks < 0 || options.threads_per_rank < 0)
    return invalid("there cannot be fewer than no nodes or threads");
  std::vector<UsableNode> nodes = nodes_with_cpus(topology, options);
  if (nodes.empty()) return invalid("no core is allowed; look at taskset and the cgroup's cpuset");
  Placement placement;
  placement.remarks = remarks_of(topology, nodes, options);
  size_t ranks = options.ranks > 0 ? static_cast<size_t>(options.ranks) : nodes.size();
  const auto granted = static_cast<size_t>(granted_threads(options));
  if (options.ranks == 0 && options.cpu_quota > 0 && ranks > granted) {
    placement.remarks.push_back(base::cat("the cgroup grants ", options.cpu_quota,
                                          " CPUs of time: only ", granted, " of ", ranks,
                                          " NUMA nodes get a rank; --nodes overrides that"));
    ranks = granted;
  }
  if (!options.simulate && nodes.size() < ranks)
    return invalid(base::cat("this machine has ", nodes.size(), " NUMA nodes with cores, not ",
                             ranks, "; more can only be simulated"));
  reserve_for_broker(nodes, options.reserve_cores);
  placement.ranks = deal_nodes(nodes, ranks, options.simulate);
  const std::vector<size_t> threads = deal_threads(placement.ranks, options);
  size_t possible = 0, given = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    possible += placement.ranks[rank].cpus.size(), given += threads[rank];
    fit_threads(placement.ranks[rank].cpus, threads[rank]);
  }
  if (options.threads_per_rank == 0 && given < possible)
    placement.remarks.push_back(base::cat("the cgroup grants ", options.cpu_quota,
                                          " CPUs of time: ", given, " of ", possible,
                                          " compute threads"));
  note_oversubscription(placement, options.cpu_quota);
  placement.shares = shares_of(placement);
  return placement;
}

}  // namespace shm
