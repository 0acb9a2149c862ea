// Where the ranks of this host go, from what the machine has, what is allowed, and the options.
//
// Pure functions apart from read_machine(). Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "shm/topology.h"

namespace cli {

struct PlaceOptions {
  int nodes = 0;                    // --nodes; 0: one rank per NUMA node
  int threads_per_node = 0;         // --threads-per-node; 0: every core
  std::string cpus = {};            // --cpus "0-3,8": exactly these compute; empty: chosen here
  std::string numa_nodes = "auto";  // --numa-nodes "1,3", numbers of the system
};

/// A machine as it is and as this process may use it.
struct Machine {
  shm::Topology whole;
  shm::AllowedSets allowed;  // of another machine everything
  double cpu_quota = 0;      // CPUs of time; 0: no limit
};

/// This machine, or the one that `source` describes: an XML file if there is one of that name, else
/// hwloc's notation. Errors: kInvalidArgument naming --topology.
base::Result<Machine> read_machine(const std::string& source);

/// Nodes and CPUs that --cpus and --numa-nodes leave of what is allowed. Errors: kInvalidArgument
/// naming the option, what is wrong with it and what is possible.
base::Result<shm::Topology> choose_from(const Machine& machine, const PlaceOptions& options);

/// Errors as above, and kInvalidArgument when there is not a core.
base::Result<shm::Placement> place_ranks(const Machine& machine, const PlaceOptions& options);

/// Cuts a placement into `replicas` groups: consecutive ranks where there are at least as many,
/// else several groups on each rank's node, which share its CPUs. Errors: kInvalidArgument for
/// numbers that do not divide each other.
base::Result<std::vector<shm::Placement>> divide(const shm::Placement& whole, int replicas);

/// The same for this machine; tells `log` what people should know.
base::Result<shm::Placement> place_ranks_here(const PlaceOptions& options, base::Log& log);

/// What a worker may still use of the CPUs that it is started with: a cpuset may have shrunk since
/// the ranks were placed. -1, which is pinned nowhere, stays, and takes the place of none.
std::vector<int> still_allowed(std::vector<int> cpus, const shm::AllowedSets& allowed);

}  // namespace cli
