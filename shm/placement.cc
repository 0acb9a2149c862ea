// The part of shm/topology.h that needs no hwloc: which CPUs go to which rank, and cgroup quotas.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/cat.h"
#include "shm/file.h"
#include "shm/topology.h"

namespace shm {

namespace {

/// CPUs of a node in the order in which threads should take them: one of every core first.
std::vector<int> usable_cpus(const Node& node, const PlacementOptions& options) {
  std::vector<int> cpus;
  size_t threads_of_a_core = 1;
  for (size_t thread = 0; thread < threads_of_a_core; ++thread) {
    for (const Core& core : node.cores) {
      if (core.efficient && !options.efficient_cores) continue;
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

std::vector<UsableNode> usable_nodes(const Topology& topology, const PlacementOptions& options) {
  std::vector<UsableNode> nodes;
  for (const Node& node : topology.nodes) {
    std::vector<int> cpus = usable_cpus(node, options);
    if (!cpus.empty()) nodes.push_back({node.os_index, std::move(cpus)});
  }
  // The front core of the first node is left to the broker only where that still leaves most.
  const auto reserve = static_cast<size_t>(std::max(options.reserve_cores, 0));
  if (!nodes.empty() && nodes.front().cpus.size() >= 4 * reserve) {
    std::vector<int>& cpus = nodes.front().cpus;
    cpus.erase(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(reserve));
  }
  return nodes;
}

/// Rank `index` of `count` ranks that share a node: its run of the node's CPUs, at least one.
std::vector<int> share_of(const std::vector<int>& cpus, size_t index, size_t count) {
  const size_t begin = index * cpus.size() / count;
  const size_t end = (index + 1) * cpus.size() / count;
  if (begin == end) return {cpus[begin % cpus.size()]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin),
          cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

/// Cuts or wraps a rank's CPUs to its number of threads.
void fit_threads(std::vector<int>& cpus, int threads) {
  const size_t own = cpus.size();
  const auto wanted = static_cast<size_t>(threads);
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
                               quota, " CPUs of time; use fewer threads");
  }
}

}  // namespace

base::Result<Placement> cpus_for_ranks(const Topology& topology, const PlacementOptions& options) {
  if (options.ranks < 1 || options.threads_per_rank < 0) {
    return base::Error{base::Code::kInvalidArgument, "there must be at least one node and thread"};
  }
  const std::vector<UsableNode> nodes = usable_nodes(topology, options);
  const auto ranks = static_cast<size_t>(options.ranks);
  if (nodes.empty()) {
    return base::Error{base::Code::kInvalidArgument,
                       "no core is allowed; look at taskset and the cgroup's cpuset"};
  }
  if (!options.simulate && nodes.size() < ranks) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("this machine has ", nodes.size(), " NUMA nodes with cores, not ",
                                 ranks, "; more can only be simulated")};
  }
  Placement placement;
  for (size_t rank = 0; rank < ranks; ++rank) {
    RankPlacement own;
    if (!options.simulate || nodes.size() >= ranks) {
      own.cpus = nodes[rank].cpus;
      own.os_node = options.simulate ? -1 : nodes[rank].os_index;
    } else {
      // Ranks [first, last) are those of this rank's node.
      const size_t node = rank * nodes.size() / ranks;
      const size_t first = (node * ranks + nodes.size() - 1) / nodes.size();
      const size_t last = ((node + 1) * ranks + nodes.size() - 1) / nodes.size();
      own.cpus = share_of(nodes[node].cpus, rank - first, last - first);
    }
    int threads = options.threads_per_rank;
    if (threads == 0) {
      threads = static_cast<int>(own.cpus.size());
      if (options.cpu_quota > 0) {
        const double share = std::floor(options.cpu_quota / options.ranks);
        threads = std::max(1, std::min(threads, static_cast<int>(share)));
      }
    }
    fit_threads(own.cpus, threads);
    placement.ranks.push_back(std::move(own));
  }
  note_oversubscription(placement, options.cpu_quota);
  return placement;
}

namespace {

/// "max 100000", "150000 100000" or two files of version 1, as CPUs; 0 for no limit or nonsense.
double parse_quota(std::string_view quota_text, std::string_view period_text) {
  double quota = 0, period = 0;
  std::from_chars(quota_text.data(), quota_text.data() + quota_text.size(), quota);
  std::from_chars(period_text.data(), period_text.data() + period_text.size(), period);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double quota_of_group(const std::string& directory) {
  if (const auto both = read_text(base::cat(directory, "/cpu.max")); both.ok()) {
    const std::string_view text = *both;
    const size_t space = std::min(text.find(' '), text.size());
    return parse_quota(text.substr(0, space), text.substr(std::min(space + 1, text.size())));
  }
  const auto quota = read_text(base::cat(directory, "/cpu.cfs_quota_us"));
  const auto period = read_text(base::cat(directory, "/cpu.cfs_period_us"));
  return quota.ok() && period.ok() ? parse_quota(*quota, *period) : 0;
}

/// The tightest limit of `group` and its ancestors below a mounted hierarchy.
double tightest(const std::string& mount, std::string group) {
  double best = 0;
  while (true) {
    const double quota = quota_of_group(base::cat(mount, group));
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return best;
    group.resize(slash);
  }
}

}  // namespace

// Lines of /proc/self/cgroup are "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1).
double read_cpu_quota(const std::string& root) {
  const auto text = read_text(base::cat(root, "/proc/self/cgroup"));
  if (!text.ok()) return 0;
  double best = 0;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = base::cat(",", line.substr(first + 1, second - first - 1), ",");
    std::string group(line.substr(second + 1));
    if (group == "/") group.clear();
    std::string mount = base::cat(root, "/sys/fs/cgroup");
    if (controllers.find(",cpu,") != std::string::npos)
      mount += "/cpu";
    else if (controllers != ",,")
      continue;
    const double quota = tightest(mount, group);
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
  }
  return best;
}

}  // namespace shm
