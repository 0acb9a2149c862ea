// A broker in this process and one worker process per rank on this host, moved on by its owner.
//
// start() returns when the workers run, before they have loaded; from then on the owner calls
// wait() and step() by turns, and looks at the events. Several of one server are opened first,
// asked together whether there is room for all, and then begin. The destructor leaves nothing
// behind: no process, no shared memory, no socket.
//
//   running ──error of step(), give_up()──► ending ──all workers gone──► down ──start_again()──┐
//      ▲                                                                                       │
//      └───────────────────────────────────────────────────────────────────────────────────────┘
//
// A supervised cluster keeps its broker, with the live requests, and its endpoint over all that,
// and its workers outlive this process; a later one takes them over. Of one that is not, an error
// of step() is the end. Start it from the main thread, which the workers' lives hang on. Thread
// rule: one.
#pragma once

#include <functional>
#include <map>
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
#include "cli/instance_directory.h"
#include "cli/place.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"
#include "cli/silence_watch.h"
#include "cli/weight_hold.h"
#include "cli/worker_processes.h"
#include "proto/channel.h"
#include "shm/topology.h"
#include "worker/backend.h"

namespace cli {

struct ClusterOptions {
  /// As of rank 0; rank, ranks, group, directory and CPUs are filled in here.
  worker::RankHostOptions rank;
  PlaceOptions place = {};
  std::optional<shm::Placement> placement = {};  // in the place of `place`
  std::string instance = {};                     // which of the groups of one server; may be empty
  bool is_first = true;                          // of them: tells what is the same for all
  std::string arena_directory;
  std::string program = "/proc/self/exe";  // knows the subcommand `worker`
  /// Gets what rank 0 is started with, before it is; may be empty. Its error ends start().
  std::function<base::Status(const worker::RankHostOptions&)> before_loading = {};
  /// A leader that says nothing for so long while it has something to do is given up. Above the
  /// ranks' own bound on waiting for each other (120 s), which says better who is stuck.
  base::TimeNs silence_max = 300'000'000'000;
  int requests_max = 256;                                         // of the broker
  std::string_view when_a_worker_ends = "run the command again";  // advice; may be empty
  std::optional<OutliveOptions> supervised = {};  // nothing: the first error ends it
};

class ClusterLoop {
 public:
  /// Errors: anything that can be wrong with model, options or machine, in one sentence.
  static base::Result<std::unique_ptr<ClusterLoop>> start(ClusterOptions options,
                                                          const worker::BackendFactory& factory,
                                                          SignalWatch& signals, base::Log& log);
  /// start() in three steps: nothing runs yet, but workers of a killed server may be taken over.
  static base::Result<std::unique_ptr<ClusterLoop>> open(ClusterOptions options,
                                                         const worker::BackendFactory& factory,
                                                         SignalWatch& signals, base::Log& log);
  /// Whether all of them fit together, on nodes where several of them may be. Errors: kNoSpace.
  static base::Status check_room(std::span<ClusterLoop* const> loops);
  base::Status begin();
  ~ClusterLoop();

  /// Sends what is to be sent and waits a while for messages, signals, ended workers, or one of
  /// `descriptors` to be readable. The owner takes the signals.
  void wait(std::span<const int> descriptors);
  /// The same for several at once; at least one.
  static void wait(std::span<ClusterLoop* const> loops, std::span<const int> descriptors);
  /// Hands what came to the broker. Errors: a worker has ended, or the group was lost; told once.
  base::Status step();

  // Of a supervised one.
  /// Ends the workers, because of this error.
  void give_up(const base::Error& error);
  bool is_running() const { return phase_ == Phase::kRunning; }
  bool is_down() const { return phase_ == Phase::kDown; }
  /// Why the workers ended, as far as is known when they have: the death of one of them explains
  /// more than what others say of it. REQUIRES: is_down().
  const base::Error& cause() const { return cause_; }
  /// REQUIRES: is_down(). Errors: kSystem; kNoSpace if it does not fit any more: somebody has
  /// removed what it had, and taken the room. Then it stays down, with this cause().
  base::Status start_again();
  /// Lets go of weights whose names somebody removed: others load them again.
  void release_removed_weights() { held_weights_.release_removed(); }
  /// Workers of a server that was killed were taken over, and have not been given up.
  bool has_adopted() const { return adopted_; }

  /// Tells the workers to end. Several that are to end at the same time are told before the first
  /// destructor waits.
  void shut_down();

  broker::Broker& broker() { return *broker_; }
  /// Of the broker since the last call, but for the loss of the group.
  std::vector<broker::Event> take_events() { return std::exchange(events_, {}); }
  base::TimeNs now() const { return clock_.now(); }

  /// Bytes loaded and in all; nothing before all ranks have told their size.
  std::optional<std::pair<uint64_t, uint64_t>> progress() const;

  /// From now on the leader has something to say.
  void begin_watch() { silence_->begin(ranks_, clock_.now()); }
  /// Asks silent workers for a sign of life: the leader while there is work, all while there is
  /// none. Error: kTimeout, the group is to be given up. REQUIRES: is_ready().
  base::Status watch(Work work);

  /// A sentence about workers that have said nothing for a while that is not yet too long; empty:
  /// all answer. REQUIRES: is_ready(), and watch() was called.
  std::string silence() const;

  /// All ranks have loaded: requests are accepted.
  bool is_ready() const { return broker_->ready(); }
  int ranks() const { return ranks_; }
  /// What rank `rank` said when it was ready.
  const proto::Ready& ready(int rank) const { return *broker_->rank(rank)->ready; }
  const shm::Placement& placement() const { return placement_; }
  pid_t worker_pid(int rank) const { return workers_->pid(rank); }

 private:
  enum class Phase { kRunning, kEnding, kDown };

  ClusterLoop(ClusterOptions options, SignalWatch& signals, base::Log& log)
      : options_(std::move(options)), signals_(signals), log_(log) {}
  base::Status place();
  base::Status set_up();
  worker::RoomQuestion room_question() const;
  base::Status make_directories(const std::string& fingerprint);
  base::Status start_workers();
  base::Status restore_directories();
  void flush();
  void receive();
  /// Takes them from the broker; the error if the group was lost.
  std::optional<base::Error> take_broker_events();
  /// The group is ready.
  void on_loaded();
  /// A worker that was taken over loads, so it is worth waiting for.
  void on_adopted_load(const broker::AdoptLoadEvent& load);
  void tell_lost_weights();
  base::Status watch_group(std::optional<base::Error> lost);
  void go_on_ending();
  std::optional<base::Error> ended_worker(WorkerProcesses::EndedHow how);
  /// The same error, or the death of a worker if that was its cause.
  base::Error cause_of(const base::Error& error);
  base::Error silence_of(const SilenceWatch::Silence& silence, Work work) const;

  ClusterOptions options_;
  SignalWatch& signals_;
  base::Log& log_;
  base::SteadyClock clock_;
  std::optional<SilenceWatch> silence_;
  int ranks_ = 0;
  bool loaded_ = false;   // some time
  bool adopted_ = false;  // the workers are those of an earlier server
  base::TimeNs adopted_by_ = 0;
  std::map<int, std::pair<uint64_t, uint64_t>> adopted_loads_;  // by rank: bytes and all bytes
  Phase phase_ = Phase::kRunning;
  base::TimeNs kill_at_ = 0;  // while ending
  base::Error cause_;         // of the last end
  shm::Placement placement_;
  std::unique_ptr<worker::Backend> backend_;  // of rank 0, never loaded
  std::optional<RunDirectory> run_directory_, socket_directory_;
  std::optional<InstanceDirectory> instance_;  // in their place, if supervised
  std::string endpoint_;
  WeightHold held_weights_;
  std::string weights_prefix_;  // of the names of the weight arenas
  bool told_to_end_ = false;
  std::unique_ptr<proto::Channel> channel_;
  std::optional<broker::Broker> broker_;
  std::optional<WorkerProcesses> workers_;
  std::vector<broker::Event> events_;  // not yet looked at
};

}  // namespace cli
