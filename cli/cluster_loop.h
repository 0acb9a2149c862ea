// A broker in this process and one worker process per rank on this host, moved on by its owner.
//
// start() returns when the workers run, before they have loaded; from then on the owner calls
// wait() and step() by turns, and looks at the events. The destructor leaves nothing behind: no
// process, no shared memory, no socket. An error of step() ends the cluster: it is of no use any
// more. Start it from the main thread, which the workers' lives hang on. Thread rule: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "broker/broker.h"
#include "cli/child_process.h"
#include "cli/place.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "proto/channel.h"
#include "shm/topology.h"
#include "worker/backend.h"

namespace cli {

struct ClusterOptions {
  /// As of rank 0; rank, ranks, group, directory and CPUs are filled in here.
  worker::RankHostOptions rank;
  PlaceOptions place = {};
  std::string arena_directory;
  std::string program = "/proc/self/exe";  // knows the subcommand `worker`
  /// Gets the number of ranks before the first is started; may be empty. Its error ends start().
  std::function<base::Status(int)> before_loading = {};
  /// A leader that says nothing for so long while it has something to do is given up. Above the
  /// ranks' own bound on waiting for each other (120 s), which says better who is stuck.
  base::TimeNs silence_max = 300'000'000'000;
  int requests_max = 256;                                         // of the broker
  std::string_view when_a_worker_ends = "run the command again";  // advice; may be empty
};

class ClusterLoop {
 public:
  /// Errors: anything that can be wrong with model, options or machine, in one sentence.
  static base::Result<std::unique_ptr<ClusterLoop>> start(ClusterOptions options,
                                                          const worker::BackendFactory& factory,
                                                          SignalWatch& signals, base::Log& log);
  ~ClusterLoop();

  /// Sends what is to be sent and waits a while for messages, signals, ended workers, or one of
  /// `descriptors` to be readable. The owner takes the signals.
  void wait(std::span<const int> descriptors);
  /// Hands what came to the broker. Errors: a worker has ended, or the group was lost.
  base::Status step();

  broker::Broker& broker() { return *broker_; }
  /// Of the broker since the last call, but for the loss of the group.
  std::vector<broker::Event> take_events() { return std::exchange(events_, {}); }
  base::TimeNs now() const { return clock_.now(); }

  /// Bytes loaded and in all; nothing before all ranks have told their size.
  std::optional<std::pair<uint64_t, uint64_t>> progress() const;

  /// From now on the leader has something to say.
  void begin_watch() { heard_at_ = clock_.now(); }
  /// Asks a silent leader for a sign of life. Error: kTimeout, it is given up.
  base::Status watch_leader();

  /// All ranks have loaded: requests are accepted.
  bool is_ready() const { return broker_->ready(); }
  int ranks() const { return ranks_; }
  /// What rank `rank` said when it was ready.
  const proto::Ready& ready(int rank) const { return *broker_->rank(rank)->ready; }
  const shm::Placement& placement() const { return placement_; }
  pid_t worker_pid(int rank) const { return workers_[static_cast<size_t>(rank)].pid(); }

 private:
  ClusterLoop(ClusterOptions options, SignalWatch& signals, base::Log& log)
      : options_(std::move(options)), signals_(signals), log_(log) {}
  base::Status place();
  base::Status set_up();
  base::Status start_workers();
  void flush();
  void receive();
  /// The group is ready for the first time.
  void on_loaded();
  enum class EndedHow { kKilled, kAnyhow };
  /// A sentence about the first worker that has ended so.
  std::optional<base::Error> ended_worker(EndedHow how);
  /// The same error, or the death of a worker if that was its cause.
  base::Error cause_of(const base::Error& error);

  ClusterOptions options_;
  SignalWatch& signals_;
  base::Log& log_;
  base::SteadyClock clock_;
  base::TimeNs heard_at_ = 0;   // of the leader, for the last time
  base::TimeNs probed_at_ = 0;  // when it was last asked for a sign of life
  int ranks_ = 0;
  bool loaded_ = false;
  shm::Placement placement_;
  std::optional<RunDirectory> arena_directory_;
  std::optional<RunDirectory> socket_directory_;
  std::string endpoint_;
  uint64_t incarnation_ = 0;  // of all workers
  std::unique_ptr<proto::Channel> channel_;
  std::optional<broker::Broker> broker_;
  std::vector<ChildProcess> workers_;  // by rank
  std::vector<broker::Event> events_;  // not yet looked at
};

}  // namespace cli
