// A broker in this process and one worker process per rank on this host.
//
// start() returns when the model is loaded; the destructor leaves nothing behind: no process, no
// shared memory, no socket. Every wait also watches the signals and the workers, so Ctrl-C and a
// killed worker end any call with an error (kCancelled, kPeerLost); after that the cluster is of no
// use any more. Start it from the main thread, which the workers' lives hang on. Thread rule: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "broker/broker.h"
#include "cli/child_process.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "proto/channel.h"
#include "shm/topology.h"
#include "worker/backend.h"

namespace cli {

struct LocalClusterOptions {
  /// As of rank 0; rank, ranks, group, directory and CPUs are filled in here.
  worker::RankHostOptions rank;
  int nodes = 0;             // 0: one rank per NUMA node
  int threads_per_node = 0;  // 0: every core
  std::string arena_directory;
  std::string program = "/proc/self/exe";  // knows the subcommand `worker`
  /// Gets the number of ranks before the first is started; may be empty. Its error ends start().
  std::function<base::Status(int)> before_loading = {};
  /// A leader that says nothing for so long while it has something to do is given up. Above the
  /// ranks' own bound on waiting for each other (120 s), which says better who is stuck.
  base::TimeNs silence_max = 300'000'000'000;
};

/// What a request gave.
struct Generated {
  std::vector<int32_t> tokens;
  proto::Finish finish = proto::Finish::kNone;
  proto::Usage usage;
};
struct Scored {
  std::vector<float> log_probabilities;  // from first_scored on
  int top_count = 0;
  std::vector<int32_t> top_ids;   // [tokens][top_count]
  std::vector<float> top_logits;  // as top_ids
  std::vector<float> last_logits;
};

enum class Continue { kYes, kNo };

class LocalCluster {
 public:
  /// `on_progress` gets bytes loaded and in all. Errors: anything that can be wrong with model,
  /// options or machine, in one sentence.
  static base::Result<std::unique_ptr<LocalCluster>> start(
      LocalClusterOptions options, const worker::BackendFactory& factory, SignalWatch& signals,
      base::Log& log, const std::function<void(uint64_t, uint64_t)>& on_progress);
  ~LocalCluster();

  /// Returns after the last token; `on_tokens` may stop it early.
  base::Result<Generated> generate(
      proto::GenerateRequest request,
      const std::function<Continue(std::span<const int32_t>)>& on_tokens);
  /// `on_positions` gets how many positions are done; may be empty.
  base::Result<Scored> score(proto::ScoreRequest request,
                             const std::function<void(int64_t)>& on_positions);
  base::Result<proto::StatsReply> stats();

  /// Of all requests so far; scored tokens count as prompt.
  const proto::Usage& usage() const { return usage_; }
  int ranks() const { return ranks_; }
  /// What rank `rank` said when it was ready.
  const proto::Ready& ready(int rank) const { return *broker_->rank(rank)->ready; }
  const shm::Placement& placement() const { return placement_; }
  pid_t worker_pid(int rank) const { return workers_[static_cast<size_t>(rank)].pid(); }

  /// Waits for `descriptor` to be readable, with everything else going on. Errors as above.
  base::Status wait_for(int descriptor);

 private:
  LocalCluster(SignalWatch& signals, base::Log& log, base::TimeNs silence_max)
      : signals_(signals), log_(log), silence_max_(silence_max) {}
  base::Status set_up(const LocalClusterOptions& options);
  base::Status start_workers(const LocalClusterOptions& options);
  base::Status await_ready(const std::function<void(uint64_t, uint64_t)>& on_progress);
  base::Status place(const LocalClusterOptions& options);
  /// Takes and sends messages for a while; an error ends the cluster.
  base::Status pump(std::span<const int> descriptors);
  void flush();
  /// Hands what came to the broker.
  void receive();
  /// Asks a silent leader for a sign of life, and gives it up in the end.
  base::Status watch_leader();
  enum class EndedHow { kKilled, kAnyhow };
  /// A sentence about the first worker that has ended so.
  std::optional<base::Error> ended_worker(EndedHow how);
  /// The same error, or the death of a worker if that was its cause.
  base::Error cause_of(const base::Error& error);
  /// Pumps until `take` has taken an event.
  base::Status await_event(const std::function<bool(broker::Event&)>& take);

  SignalWatch& signals_;
  base::Log& log_;
  const base::TimeNs silence_max_;
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
  proto::Usage usage_;
};

}  // namespace cli
