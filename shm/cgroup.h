// What the system lets this process use: CPUs, nodes with memory, CPU time.
//
// Cpusets, `taskset` and `numactl` are seen through the kernel's own answer,
// /proc/thread-self/status, so every kind of cgroup counts, also one that is mounted nowhere. Reads
// text files and asks one system call; `root` is where / is. Any thread; the answer is the calling
// thread's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace shm {

/// Numbers are the system's, ascending. Nothing: no limit is known.
struct AllowedSets {
  std::optional<std::vector<int>> cpus = {};  // by cpuset and affinity
  std::optional<std::vector<int>> nodes =
      {};  // whose memory may be used: by cpuset and memory policy
};

/// The memory policy is asked of this process only where `root` is empty.
AllowedSets read_allowed(const std::string& root = "");

/// CPUs of time the tightest of this process's cgroups grants (cpu.max, or cpu.cfs_quota_us of
/// version 1); 0 when there is no limit or it cannot be read.
double read_cpu_quota(const std::string& root = "");

/// "0-3,8" as ascending numbers, each once. Errors: kInvalidArgument, a sentence about the text
/// that follows on the name of what was given.
base::Result<std::vector<int>> parse_number_list(std::string_view text);

}  // namespace shm
