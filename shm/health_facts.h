// What of a system's settings bears on speed and safety of numoe, as plain values: for checkup.h.
//
// Reads text files, asks the file systems of the arena directories, and tries four system calls on
// a throwaway page. Changes nothing, but for making the user's arena directory as `serve` would. A
// text is empty where the system does not say. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shm/arena_dir.h"
#include "shm/mounts.h"
#include "shm/numa.h"
#include "shm/topology.h"

namespace shm {

/// A file system that could hold weights.
struct ArenaPlace {
  std::string path;  // that was asked about
  Mount mount;
  uint64_t total_bytes = 0, free_bytes = 0;
};

/// Huge pages that a node keeps for hugetlbfs.
struct HugePool {
  int node = 0;
  uint64_t page_bytes = 0, pages = 0, free_pages = 0;
};

struct HealthFacts {
  // The machine.
  int nodes = 0;                                                       // that may be used
  int memory_nodes = 0;                                                // of these, with memory
  int cores = 0;                                                       // that may be used
  std::string cpus_allowed, cpus_online, nodes_allowed, nodes_online;  // lists as in "0-3"
  std::vector<std::pair<std::string, int>> governors = {};             // CPUs of each, by name
  std::string frequency_driver;

  // Settings of the kernel, as its files say.
  std::string numa_balancing, zone_reclaim_mode, overcommit_memory, swappiness, max_map_count;
  std::string transparent_huge_pages, shmem_enabled;  // the chosen word
  std::vector<HugePool> huge_pools = {};

  // Limits of this process.
  std::optional<uint64_t> memlock_bytes = {};  // nothing: no limit
  double cpu_quota = 0;                        // CPUs of time; 0: no limit
  uint64_t throttled = 0, periods = 0;  // of the quota so far, where it stopped us most often
  uint64_t memory_limit_bytes = 0;      // of the cgroup; 0: no limit
  std::string container;                // by what it is known that this is one
  CallRights rights;

  // Memory.
  uint64_t memory_bytes = 0, available_bytes = 0, swap_bytes = 0, swap_free_bytes = 0;

  // Where weights go.
  std::optional<ArenaDir> arena = {};
  std::string arena_error;  // why there is none
  bool arena_in_dev_shm = false;
  std::vector<ArenaPlace> places = {};

  // What logind does when this user logs out.
  bool logind = false;  // systemd runs here
  unsigned uid = 0;
  std::string user;
  bool lingers = false;
  bool remove_ipc = true;       // as configured
  std::string remove_ipc_file;  // that says so; empty: the default
};

struct HealthOptions {
  std::string arena_directory = {};  // --arena-dir
  unsigned uid = 0;
  std::string root = {};                          // where / is
  std::optional<CallRights> rights = {};          // nothing: tried
  std::optional<ArenaDirOptions> arena_dir = {};  // other places to look; only in tests
};

HealthFacts read_health_facts(const Topology& topology, const HealthOptions& options);

/// The bound of the tightest memory cgroup; 0: none.
uint64_t read_memory_limit(const std::string& root);

}  // namespace shm
