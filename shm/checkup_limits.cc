// The findings about what this process may do, and the report as a whole.
#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "shm/arena_room.h"
#include "shm/checkup.h"

namespace shm {

namespace {

// Said by the place or the workers themselves while they load.
constexpr std::string_view kSaidElsewhere[] = {"arena_directory", "call_rights", "cpu_quota"};

Finding memlock(const HealthFacts& facts) {
  Finding finding{.id = "memlock"};
  if (!facts.memlock_bytes) {
    finding.found = "no limit on locked memory (ulimit -l)";
    return finding;
  }
  finding.level = Level::kNote;
  finding.found =
      base::cat("locked memory is limited to ", memory_text(*facts.memlock_bytes), " (ulimit -l)");
  finding.why = "--mlock cannot keep more than that out of swap";
  finding.cure =
      "ulimit -l unlimited, in a systemd unit LimitMEMLOCK=infinity, in Docker --ulimit memlock=-1";
  return finding;
}

Finding quota(const HealthFacts& facts) {
  Finding finding{.id = "cpu_quota"};
  if (facts.cpu_quota <= 0) {
    finding.found = base::cat("no quota of CPU time, ", facts.cores, " cores");
    return finding;
  }
  const int threads = std::max(1, static_cast<int>(std::floor(facts.cpu_quota)));
  const double share = facts.periods == 0 ? 0
                                          : 100.0 * static_cast<double>(facts.throttled) /
                                                static_cast<double>(facts.periods);
  finding.level = Level::kNote;
  finding.found = base::cat("the cgroup grants ", facts.cpu_quota, " CPUs of time for ",
                            facts.cores, " cores (cpu.max); throttled in ", facts.throttled, " of ",
                            facts.periods, " periods (nr_throttled in cpu.stat)");
  if (facts.cpu_quota >= facts.cores && facts.throttled == 0) return finding;
  finding.why =
      base::cat("at most ", threads, threads == 1 ? " compute thread is" : " compute threads are",
                " used; one more, and all wait while the group is throttled");
  if (facts.cpu_quota >= 1 && share < 1) return finding;
  finding.level = Level::kWarning;
  finding.cure =
      "give whole CPUs by a cpuset instead of a quota (docker --cpuset-cpus, a Kubernetes pod of "
      "class Guaranteed with whole CPUs), or use fewer --threads-per-node";
  return finding;
}

const char* right_text(Right right) {
  switch (right) {
    case Right::kAllowed: return "allowed";
    case Right::kDenied: return "denied (EPERM)";
    case Right::kMissing: return "not there (ENOSYS)";
  }
  return "";
}

Finding rights(const HealthFacts& facts) {
  const CallRights& may = facts.rights;
  Finding finding{.id = "call_rights"};
  finding.found =
      base::cat("mbind ", right_text(may.mbind), ", set_mempolicy ", right_text(may.set_mempolicy),
                ", get_mempolicy ", right_text(may.get_mempolicy), ", move_pages ",
                right_text(may.move_pages));
  if (may == CallRights{}) return finding;
  if (may.mbind != Right::kAllowed) {
    finding.level = facts.nodes > 1 ? Level::kWarning : Level::kNote;
    finding.why =
        "memory cannot be bound to its node: it lies where pinned threads touch it first, if that "
        "node has room";
    finding.cure = "--cap-add SYS_NICE for the container (Kubernetes: capabilities.add SYS_NICE)";
    return finding;
  }
  finding.level = Level::kNote;
  finding.why = may.move_pages != Right::kAllowed
                    ? "where pages are is known by mapping (/proc/self/numa_maps), not by page"
                    : "nothing here depends on it";
  if (may.move_pages != Right::kAllowed)
    finding.cure = "a seccomp profile that allows move_pages (docker --security-opt seccomp=FILE)";
  return finding;
}

Finding cpuset(const HealthFacts& facts) {
  Finding finding{.id = "cpuset"};
  finding.found =
      base::cat("CPUs ", facts.cpus_allowed, " of ", facts.cpus_online, ", memory of nodes ",
                facts.nodes_allowed, " of ", facts.nodes_online, " (/proc/self/status)");
  const bool whole =
      facts.cpus_allowed == facts.cpus_online && facts.nodes_allowed == facts.nodes_online;
  if (whole) return finding;
  finding.level = Level::kNote;
  finding.why = "numoe uses nothing else; who set it (taskset, numactl, a cgroup) knows why";
  return finding;
}

Finding container(const HealthFacts& facts) {
  Finding finding{.id = "container"};
  if (facts.container.empty()) {
    finding.found = "no sign of a container";
    return finding;
  }
  finding.level = Level::kNote;
  finding.found = base::cat("a container: ", facts.container);
  finding.why = "settings of the kernel are the host's and are changed there";
  return finding;
}

}  // namespace

void check_limits(const HealthFacts& facts, std::vector<Finding>& findings) {
  findings.push_back(quota(facts));
  findings.push_back(cpuset(facts));
  findings.push_back(rights(facts));
  findings.push_back(memlock(facts));
  findings.push_back(container(facts));
}

std::vector<Finding> check_up(const HealthFacts& facts) {
  std::vector<Finding> findings;
  check_arena(facts, findings);
  check_kernel(facts, findings);
  check_memory(facts, findings);
  check_limits(facts, findings);
  return findings;
}

std::vector<std::string> start_warnings(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    const bool said = std::find(std::begin(kSaidElsewhere), std::end(kSaidElsewhere), finding.id) !=
                      std::end(kSaidElsewhere);
    if (said || finding.level < Level::kWarning) continue;
    lines.push_back(base::cat(finding.found, ": ", finding.why, "; cure: ", finding.cure));
  }
  return lines;
}

const char* level_name(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kNote: return "note";
    case Level::kWarning: return "warning";
    case Level::kProblem: return "problem";
  }
  return "";
}

}  // namespace shm
