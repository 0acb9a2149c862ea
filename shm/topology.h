// What machine this is, as a plain value: NUMA nodes, their cores, the CPUs of each core; and which
// CPUs the threads of which rank get. The seam to hwloc.
//
// Three different numbers: a *rank* counts workers, a *logical index* counts nodes in the order of
// the machine's tree, an *OS index* is what the kernel calls a node or CPU. Only OS indices go into
// system calls. Pure functions apart from the two that read. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "shm/cgroup.h"

namespace shm {

struct Core {
  int package = 0;         // logical index of its socket
  bool efficient = false;  // a slower core of a hybrid processor
  std::vector<int> cpus;   // OS CPUs, one per hardware thread; the first is used first
  int last_cache = -1;     // index into Topology::last_cache_bytes; -1: no cache is known
};

struct Node {
  int os_index = 0;
  uint64_t memory_bytes = 0;             // 0: CPUs without memory of their own
  std::vector<Core> cores;               // empty for a node that has memory only
  std::vector<uint64_t> distances = {};  // to Topology::nodes in their order; empty: not known
};

struct Topology {
  std::vector<Node> nodes;  // by logical index
  int packages = 0;
  std::string description;                 // one line for people
  std::vector<uint64_t> last_cache_bytes;  // of each last-level cache; cores share it or not
};

enum class TopologyKind {
  kMachine,    // this one
  kXmlFile,    // `text` is the path of a file by lstopo or hwloc
  kSynthetic,  // `text` is hwloc's notation, for example "package:2 [numa] core:4 pu:2"
};

struct TopologySource {
  TopologyKind kind = TopologyKind::kMachine;
  std::string text = {};
};

/// Everything there is, allowed or not. Errors: kInvalidArgument for a text or file that hwloc does
/// not take; kSystem.
base::Result<Topology> read_whole_topology(const TopologySource& source);

/// What there is for this process: of its own machine what read_allowed() leaves. Errors as above.
base::Result<Topology> read_topology(const TopologySource& source);

/// What `allowed` leaves of a machine: cores with their allowed CPUs, and nodes whose memory may be
/// used. Cores of a node without any memory belong to the nearest that is left. Cores of a
/// forbidden node are dropped, unless no node that is left has cores: then they too belong to the
/// nearest (as under `numactl --cpunodebind=0 --membind=1`).
Topology restrict_to(const Topology& whole, const AllowedSets& allowed);

/// "2 packages, 2 NUMA nodes, 16 cores"
std::string describe(const Topology& topology);

struct PlacementOptions {
  int ranks = 1;                 // 0: one a node that has usable cores, no more than the quota
  int threads_per_rank = 0;      // 0: every core the rank can have
  bool simulate = false;         // ranks share nodes that are one in truth
  bool efficient_cores = false;  // use the slower cores of hybrid processors too
  bool second_threads = false;   // use all hardware threads of a core, not one
  int reserve_cores = 0;         // cores of the first node left to others, where there are enough
  double cpu_quota = 0;  // CPUs of time the cgroup grants, see read_cpu_quota(); 0: no limit
};

struct RankPlacement {
  int os_node = -1;       // -1 when simulated: memory is bound nowhere
  std::vector<int> cpus;  // OS CPU of each thread
};

struct Placement {
  std::vector<RankPlacement> ranks;
  std::vector<double> shares = {};  // of the work, by threads; empty: equal ones serve better
  bool oversubscribed =
      false;         // some CPU got two threads, or the quota is smaller than the threads
  std::string note;  // a warning about that, for people; empty if there is nothing to say
  std::vector<std::string> remarks = {};  // what else people may wonder about, a sentence each
};

/// Nodes that a rank can sit on: those with a core that the options let it use.
int usable_nodes(const Topology& topology, const PlacementOptions& options);

/// Gives every rank a node and CPUs. Not simulated, rank r gets the r-th node that has cores;
/// simulated, ranks are dealt to those nodes in runs and split their cores. Without a number of
/// threads all ranks together get no more than the quota grants. Shares are told where some rank
/// has more than 1.5 times the threads of another: below that memory sets the pace of a node.
/// Error: kInvalidArgument when there are fewer nodes than ranks and it is no simulation.
base::Result<Placement> cpus_for_ranks(const Topology& topology, const PlacementOptions& options);

}  // namespace shm
