// The findings about settings of the kernel, memory, and the place of the weights.
#include "shm/checkup.h"

#include <algorithm>

#include "base/cat.h"
#include "shm/arena_room.h"
#include "shm/system_text.h"

namespace shm {

namespace {

constexpr char kShmemEnabled[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
constexpr char kThpEnabled[] = "/sys/kernel/mm/transparent_hugepage/enabled";
constexpr char kMountArena[] =
    "sudo mkdir -p /run/numoe && sudo mount -t tmpfs -o "
    "huge=within_size,mode=1777,size=90%,nosuid,nodev tmpfs /run/numoe";
constexpr uint64_t kMapCountMin = 65530;  // the kernel's default
constexpr uint64_t kSwappinessMax = 10;   // above it, shared memory goes to swap early

std::string setting(const char* name, const std::string& value) {
  std::string path = base::cat("/proc/sys/", name);
  std::replace(path.begin(), path.end(), '.', '/');
  return base::cat(name, " is ", value, " (", path, ")");
}

Finding numa_balancing(const HealthFacts& facts) {
  Finding finding{.id = "numa_balancing"};
  if (facts.numa_balancing.empty() || facts.numa_balancing == "0") {
    finding.found = facts.numa_balancing.empty() ? "this kernel has no NUMA balancing"
                                                 : setting("kernel.numa_balancing", "0");
    return finding;
  }
  finding.level = facts.nodes > 1 ? Level::kWarning : Level::kNote;
  finding.found = setting("kernel.numa_balancing", facts.numa_balancing);
  finding.why =
      facts.nodes > 1
          ? "the kernel takes pages out of use again and again to see who needs them, which "
            "stops compute threads, and moves memory that is not bound"
          : "it does nothing on the single node that may be used";
  if (facts.nodes > 1) finding.cure = "sudo sysctl kernel.numa_balancing=0";
  return finding;
}

Finding zone_reclaim(const HealthFacts& facts) {
  Finding finding{.id = "zone_reclaim_mode"};
  const bool off = facts.zone_reclaim_mode.empty() || facts.zone_reclaim_mode == "0";
  finding.found = off && facts.zone_reclaim_mode.empty()
                      ? "this kernel has no zone reclaim"
                      : setting("vm.zone_reclaim_mode", facts.zone_reclaim_mode);
  if (off) return finding;
  finding.level = facts.nodes > 1 ? Level::kWarning : Level::kNote;
  finding.why =
      "a node that is full reclaims its own page cache before it takes memory elsewhere, so "
      "loading stalls and model files are read twice";
  finding.cure = "sudo sysctl vm.zone_reclaim_mode=0";
  return finding;
}

Finding huge_pages(const HealthFacts& facts) {
  Finding finding{.id = "transparent_huge_pages"};
  if (facts.transparent_huge_pages.empty()) {
    finding.level = Level::kNote;
    finding.found = base::cat("this kernel has no transparent huge pages (", kThpEnabled, ")");
    return finding;
  }
  finding.found = base::cat("[", facts.transparent_huge_pages, "] in ", kThpEnabled);
  if (facts.transparent_huge_pages != "never") return finding;
  finding.level = Level::kNote;
  finding.why =
      "buffers of a process get small pages; weights and KV cache do not depend on it, but on "
      "shmem_enabled and the mount";
  finding.cure = base::cat("echo madvise | sudo tee ", kThpEnabled);
  return finding;
}

// The file rules memory that lies on no mount; the options of a mount rule its files, unless it
// says deny or force.
Finding shmem_enabled(const HealthFacts& facts) {
  Finding finding{.id = "shmem_enabled"};
  const std::string& word = facts.shmem_enabled;
  if (word.empty()) {
    finding.level = Level::kNote;
    finding.found = base::cat("this kernel has no ", kShmemEnabled);
    finding.why = "shared memory has small pages, except on a hugetlbfs";
    return finding;
  }
  finding.found = base::cat("[", word, "] in ", kShmemEnabled);
  if (word == "deny") {
    finding.level = Level::kWarning;
    finding.why =
        "no tmpfs gives huge pages, whatever its mount says, and small ones read about a quarter "
        "slower";
    finding.cure = base::cat("echo never | sudo tee ", kShmemEnabled,
                             ", which leaves it to the options of each mount");
    return finding;
  }
  if (word == "force" || (facts.arena && facts.arena->huge_pages)) {
    finding.why = word == "force" ? "every tmpfs gives huge pages"
                                  : "it rules only memory without a mount; the arena directory's "
                                    "mount gives huge pages itself";
    return finding;
  }
  finding.level = Level::kNote;
  finding.why = base::cat("[", word,
                          "] gives files in the arena directory no huge pages: only a mount with "
                          "huge=within_size does, or [force]");
  finding.cure = kMountArena;
  return finding;
}

Finding pools(const HealthFacts& facts) {
  Finding finding{.id = "hugetlb_pools"};
  for (const HugePool& pool : facts.huge_pools)
    finding.found +=
        base::cat(finding.found.empty() ? "" : ", ", "node ", pool.node, ": ", pool.pages, " of ",
                  memory_text(pool.page_bytes), ", ", pool.free_pages, " free");
  if (finding.found.empty()) {
    finding.found = "no pages are reserved for hugetlbfs";
    return finding;
  }
  finding.level = Level::kNote;
  finding.why = "only a hugetlbfs can use what is reserved, by --huge-pages 2m or 1g";
  return finding;
}

bool is_slow(const std::string& governor, const std::string& driver) {
  // These processors choose frequencies themselves; powersave is their normal word.
  if (driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate-epp")) return false;
  return governor == "powersave" || governor == "conservative" || governor == "ondemand";
}

Finding governor(const HealthFacts& facts) {
  Finding finding{.id = "cpu_governor"};
  if (facts.governors.empty()) {
    finding.found = "no frequency control (a virtual machine, or the firmware does it)";
    return finding;
  }
  bool all_performance = true;
  for (const auto& [name, cpus] : facts.governors) {
    finding.found += base::cat(finding.found.empty() ? "" : ", ", name, " on ", cpus, " CPUs");
    all_performance = all_performance && name == "performance";
    if (is_slow(name, facts.frequency_driver)) finding.level = Level::kWarning;
  }
  finding.found += " (/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor)";
  if (all_performance) return finding;
  finding.level = std::max(finding.level, Level::kNote);
  finding.why = "cores that clock down while they wait for others start each step slowly";
  finding.cure = "sudo cpupower frequency-set -g performance";
  return finding;
}

Finding swap(const HealthFacts& facts) {
  Finding finding{.id = "swap"};
  if (facts.swap_bytes == 0) {
    finding.found = "no swap (/proc/meminfo)";
    return finding;
  }
  const uint64_t used = facts.swap_bytes - std::min(facts.swap_free_bytes, facts.swap_bytes);
  finding.found = base::cat(memory_text(facts.swap_bytes), " of swap, ", memory_text(used),
                            " used, ", setting("vm.swappiness", facts.swappiness));
  const bool eager = number_of(facts.swappiness) > kSwappinessMax;
  finding.level = eager ? Level::kWarning : Level::kNote;
  finding.why = "weights in shared memory can be swapped out, and are read back page by page";
  finding.cure = "sudo sysctl vm.swappiness=1, or sudo swapoff -a, or serve with --mlock";
  return finding;
}

Finding overcommit(const HealthFacts& facts) {
  Finding finding{.id = "overcommit"};
  finding.found = facts.overcommit_memory.empty()
                      ? "unknown"
                      : setting("vm.overcommit_memory", facts.overcommit_memory);
  if (facts.overcommit_memory != "2") return finding;
  finding.level = Level::kWarning;
  finding.why =
      "shared memory counts against a limit that is half of the memory by default, so a model "
      "that fits is refused";
  finding.cure = "sudo sysctl vm.overcommit_memory=0, or a higher vm.overcommit_ratio";
  return finding;
}

Finding map_count(const HealthFacts& facts) {
  Finding finding{.id = "max_map_count"};
  finding.found =
      facts.max_map_count.empty() ? "unknown" : setting("vm.max_map_count", facts.max_map_count);
  if (facts.max_map_count.empty() || number_of(facts.max_map_count) >= kMapCountMin) return finding;
  finding.level = Level::kWarning;
  finding.why = "a process that may hold few mappings fails in the middle of its work";
  finding.cure = base::cat("sudo sysctl vm.max_map_count=", kMapCountMin);
  return finding;
}

Finding memory(const HealthFacts& facts) {
  Finding finding{.id = "memory"};
  finding.found =
      base::cat(memory_text(facts.memory_bytes), ", ", memory_text(facts.available_bytes),
                " available, on ", facts.memory_nodes, " of ", facts.nodes, " nodes");
  if (facts.memory_limit_bytes == 0) return finding;
  finding.level = Level::kNote;
  finding.found += base::cat("; the cgroup allows ", memory_text(facts.memory_limit_bytes));
  finding.why = "weights and KV cache in shared memory count against the limit of the cgroup";
  return finding;
}

Finding arena(const HealthFacts& facts) {
  Finding finding{.id = "arena_directory"};
  if (!facts.arena) {
    finding.level = Level::kProblem;
    finding.found = facts.arena_error;
    finding.why = "weights and KV cache have no place";
    finding.cure = base::cat(kMountArena, ", or name a tmpfs with --arena-dir");
    return finding;
  }
  finding.found = base::cat(facts.arena->directory, " on ", facts.arena->file_system, ", ",
                            memory_text(facts.arena->free_bytes), " free, ",
                            facts.arena->huge_pages ? "huge pages" : "small pages");
  if (facts.arena->warning.empty()) return finding;
  finding.level = Level::kWarning;
  finding.why = facts.arena->warning;
  finding.cure =
      facts.container.empty()
          ? kMountArena
          : base::cat("on the host: ", kMountArena,
                      "; then give it to the container, as with -v /run/numoe:/run/numoe");
  return finding;
}

Finding places(const HealthFacts& facts) {
  Finding finding{.id = "arena_mounts"};
  for (const ArenaPlace& place : facts.places)
    finding.found += base::cat(finding.found.empty() ? "" : "; ", place.path, ": ",
                               place.mount.type, ", ", memory_text(place.free_bytes), " of ",
                               memory_text(place.total_bytes), " free, ", place.mount.options);
  if (finding.found.empty()) {
    finding.level = Level::kNote;
    finding.found = "nothing is mounted at /run/numoe and /dev/shm";
  }
  return finding;
}

Finding remove_ipc(const HealthFacts& facts) {
  Finding finding{.id = "remove_ipc"};
  const std::string source =
      facts.remove_ipc_file.empty() ? "by default" : base::cat("in ", facts.remove_ipc_file);
  finding.found = base::cat("RemoveIPC=", facts.remove_ipc ? "yes " : "no ", source);
  if (!facts.logind) {
    finding.found = "systemd does not run here";
  } else if (facts.uid < 1000) {
    finding.found += base::cat("; user ", facts.uid, " is a system user, whom it spares");
  } else if (facts.lingers) {
    finding.found += base::cat("; ", facts.user, " lingers");
  } else if (facts.arena && !facts.arena_in_dev_shm) {
    finding.found += "; the arena directory is not below /dev/shm";
  } else if (facts.remove_ipc) {
    const std::string user = facts.user.empty() ? "USER" : facts.user;
    finding.level = Level::kWarning;
    finding.why = base::cat("when the last session of ", user,
                            " ends, logind deletes his files in /dev/shm, so weights are lost to "
                            "the next start and to workers that are started again");
    finding.cure = base::cat("run numoe as a system user, or sudo loginctl enable-linger ", user,
                             ", or RemoveIPC=no in /etc/systemd/logind.conf and sudo systemctl "
                             "restart systemd-logind, or use /run/numoe");
  }
  return finding;
}

}  // namespace

void check_kernel(const HealthFacts& facts, std::vector<Finding>& findings) {
  findings.push_back(numa_balancing(facts));
  findings.push_back(zone_reclaim(facts));
  findings.push_back(huge_pages(facts));
  findings.push_back(shmem_enabled(facts));
  findings.push_back(pools(facts));
  findings.push_back(governor(facts));
}

void check_memory(const HealthFacts& facts, std::vector<Finding>& findings) {
  findings.push_back(memory(facts));
  findings.push_back(swap(facts));
  findings.push_back(overcommit(facts));
  findings.push_back(map_count(facts));
}

void check_arena(const HealthFacts& facts, std::vector<Finding>& findings) {
  findings.push_back(arena(facts));
  findings.push_back(places(facts));
  findings.push_back(remove_ipc(facts));
}

}  // namespace shm
