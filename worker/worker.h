// One rank as the broker sees it: says hello, reports loading, is ready, serves, stops.
//
//   hello ──HelloReply──► loading ──loaded()──► ready ──Shutdown──► stopped
//     ├──────────── refused, or a failure in any state ───────────► failed
//     └◄─────────────────── Rejoin ──────────────── ready
//
// A state machine: on_message and on_tick change it, messages to the broker leave through the
// outbox. It reads no clock, no socket and no random source. Hello and Ready are said again until
// they are answered, and Ready now and then afterwards: a broker to which this worker belongs no
// more answers that with a Shutdown, one that was started again and can use it with a Rejoin. Then
// it forgets all requests and says hello as one that has loaded: once accepted it is ready at once.
// Rank 0 owns a Leader, which answers requests; the other ranks only show that they are there
// (their steps come through shared memory). Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/step.h"
#include "proto/channel.h"
#include "proto/envelope.h"
#include "proto/messages.h"
#include "worker/leader.h"

namespace worker {

struct WorkerOptions {
  std::string node_id = {};  // at most proto::kNodeIdBytesMax bytes
  uint64_t incarnation = 0;  // greater after each start
  int rank = 0, rank_count = 1;
  std::string model_fingerprint = {};  // of what it is going to load
  std::string program_version = {};
  std::string group_id = {};                // with which it loads; said by a hello after that
  base::TimeNs repeat_after = 500'000'000;  // Hello and Ready without an answer
  /// Ready with one: that it is still there. So a next broker that came too soon to be noticed
  /// hears of this worker before it gives up waiting.
  base::TimeNs say_after = 1'000'000'000;
};

/// What only the process around a worker can measure.
class StatsSource {
 public:
  virtual ~StatsSource() = default;
  /// Fills in the times and waits.
  virtual void add_to(proto::StatsReply& stats) const = 0;
};

/// What only the process around a worker can look up: where its memory lies.
class PlacementSource {
 public:
  virtual ~PlacementSource() = default;
  /// Looks at every page or a sample; takes about a second for 20 GiB in small pages.
  virtual proto::PlacementReply placement() const = 0;
};

class Worker {
 public:
  enum class State { kHello, kLoading, kReady, kStopped, kFailed };

  explicit Worker(WorkerOptions options);

  State state() const { return state_; }
  /// Why it failed, or why it was stopped.
  const base::Error& reason() const { return reason_; }
  /// Of the broker's plan that it belongs to; 0 before it was accepted.
  uint64_t plan_epoch() const { return plan_epoch_; }
  /// nullptr unless it leads.
  const Leader* leader() const { return leader_ ? &*leader_ : nullptr; }

  void on_message(const proto::Message& message, base::TimeNs now);
  /// Repeats what was not answered; a leader also runs at most one step.
  void on_tick(base::TimeNs now);
  /// True if the next on_tick() has a step to run, so that waiting for messages would be a loss.
  bool has_work() const { return leader_.has_value() && leader_->has_work(); }
  /// Messages to the broker, in order.
  std::vector<proto::Message> take_outbox();

  // From the process. REQUIRES: state kLoading.
  void load_progress(uint64_t bytes_done, uint64_t bytes_total);
  /// A follower has loaded; `source` as below.
  void loaded(proto::Ready ready, const StatsSource* source = nullptr);
  /// The leader has loaded. `runner` and `source` (may be null) must outlive the worker; the shape
  /// fields of `ready` are filled in here.
  void lead(proto::Ready ready, engine::StepRunner& runner, LeaderOptions options,
            const StatsSource* source);

  /// Requests for the placement are answered from now on, between steps. `source` must outlive the
  /// worker.
  void show_placement(const PlacementSource& source) { placement_source_ = &source; }

  /// From the process, in any state: it cannot go on. The broker is told.
  void fail(base::Error error);
  /// From the process: there is no broker any more. Nobody waits for answers, so all requests are
  /// forgotten; whoever comes next is told every `repeat_after` that this worker is here.
  void on_broker_lost();

 private:
  void send(proto::Body body, std::string trace_id = {});
  void on_hello_reply(const proto::HelloReply& reply);
  void on_rejoin();
  void on_stats_request(const std::string& trace_id);
  void drain_leader();

  const WorkerOptions options_;
  State state_ = State::kHello;
  base::Error reason_;
  uint64_t plan_epoch_ = 0;
  uint64_t sequence_ = 0;
  std::optional<proto::Ready> ready_;
  bool ready_answered_ = false;
  bool broker_lost_ = false;
  std::optional<base::TimeNs> said_at_;  // Hello or Ready for the last time; nothing: say it now
  std::optional<Leader> leader_;
  const StatsSource* source_ = nullptr;
  const PlacementSource* placement_source_ = nullptr;
  std::vector<proto::Message> outbox_;
};

}  // namespace worker
