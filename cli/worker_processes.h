// The worker processes of a group on this host: started, or taken over from a server that was
// killed; watched; ended.
//
// They are one group: whoever ends takes all with it, by the owner's order. The destructor leaves
// none. Thread rule: the main thread, which the lives of children hang on.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/child_process.h"
#include "cli/instance_directory.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "shm/topology.h"
#include "worker/rank_host.h"

namespace cli {

/// Of workers that stay when this process is killed.
struct OutliveOptions {
  base::TimeNs orphan_ns = 60'000'000'000;  // so long they wait for another server
};

struct WorkerProcessesOptions {
  std::string program;           // knows the subcommand `worker`
  worker::RankHostOptions rank;  // as of rank 0; the directories are set, what differs is not
  shm::Placement placement;
  std::string endpoint;  // of the broker
  std::optional<OutliveOptions> outlive = {};
};

class WorkerProcesses {
 public:
  WorkerProcesses(WorkerProcessesOptions options, SignalWatch& signals)
      : options_(std::move(options)), signals_(signals) {}

  /// Chooses what the next start differs in; the group id was never used. REQUIRES: all have ended.
  void prepare(const std::string& group_id);
  /// One process per rank. REQUIRES: prepare(). Errors: kSystem.
  base::Status start();

  enum class Leftover { kNone, kAdopted, kKilled };
  /// Looks for workers of an earlier server in the directory of this instance. Those that were
  /// started with the same options, all of them, become ours; others are killed.
  Leftover take_over(const InstanceDirectory& instance);
  /// What a later server must know to take them over, as InstanceDirectory keeps it.
  std::string plan() const;

  enum class EndedHow { kKilled, kAnyhow };
  /// A sentence about the first worker that has ended so; not by kill().
  std::optional<std::string> ended(EndedHow how);
  bool all_ended();
  void kill();
  /// Kills, and waits until they are gone.
  void clear() { workers_.clear(); }

  /// To be watched, as SIGCHLD is.
  std::vector<int> descriptors();
  pid_t pid(int rank) const { return workers_[static_cast<size_t>(rank)].pid(); }
  /// By which the channel knows it.
  std::string peer(int rank) const;
  /// "worker 1 (process 4711)", or "worker 1 (process 4711, stopped by a signal)".
  std::string describe(int rank) const;
  int count() const { return static_cast<int>(options_.placement.ranks.size()); }

 private:
  std::vector<std::string> arguments(int rank, const std::string& group_id,
                                     uint64_t incarnation) const;
  /// All arguments of all ranks, without what differs from start to start.
  std::string common_plan() const;
  /// Takes group and incarnation from what plan() of an earlier server gave; false if it started
  /// its workers with something else.
  bool read_plan(std::string_view text);

  const WorkerProcessesOptions options_;
  SignalWatch& signals_;
  const std::string broker_name_ = random_id();  // no other server has it
  std::string group_id_;
  uint64_t incarnation_ = 0;           // of all of them
  bool killed_ = false;                // by us
  std::vector<ChildProcess> workers_;  // by rank
};

}  // namespace cli
