#include "worker/worker_process.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/cat.h"
#include "proto/zmq_channel.h"
#include "worker/instance.h"
#include "worker/worker.h"

namespace worker {

namespace {

constexpr base::TimeNs kMillisecond = 1'000'000;
// How long a process without work waits for messages or steps before it looks after itself again.
constexpr base::TimeNs kIdleWait = 50 * kMillisecond;
// How often a worker of an instance looks whether somebody holds it.
constexpr base::TimeNs kLookAfter = 100 * kMillisecond;
// What is not answered is said again so often; somebody may wait for a group to be ready.
constexpr base::TimeNs kRepeatAfter = 100 * kMillisecond;
// How long the broker's word may take that explains the end of the group.
constexpr base::TimeNs kLastWord = 100 * kMillisecond;
// How long the last words of a failed worker may take to be sent and answered.
constexpr base::TimeNs kFarewell = 1000 * kMillisecond;

/// Measures the steps of another runner: a state machine cannot, it has no clock.
class TimedRunner final : public engine::StepRunner, public StatsSource, public PlacementSource {
 public:
  TimedRunner(Backend& backend, const base::Clock& clock) : backend_(backend), clock_(clock) {}

  engine::RunnerShape shape() const override { return backend_.runner().shape(); }

  base::Result<engine::StepOutput> run(const engine::Step& step) override {
    const base::TimeNs begin = clock_.now();
    auto output = backend_.runner().run(step);
    const auto elapsed = static_cast<uint64_t>(clock_.now() - begin);
    const auto columns = static_cast<uint64_t>(step.columns.size());
    times_.step_ns += elapsed;
    if (step.columns.size() == step.block_tables.size()) {
      times_.decode_columns += columns;
      times_.decode_ns += elapsed;
    } else {
      times_.prefill_columns += columns;
      times_.prefill_ns += elapsed;
    }
    return output;
  }

  void add_to(proto::StatsReply& stats) const override {
    stats.sample_ns = times_.sample_ns;
    stats.prefill_columns = times_.prefill_columns;
    stats.prefill_ns = times_.prefill_ns;
    stats.decode_columns = times_.decode_columns;
    stats.decode_ns = times_.decode_ns;
    const engine::StepStats rank = backend_.report().engine;
    stats.steps = std::max(stats.steps, rank.steps);
    stats.columns = std::max(stats.columns, rank.columns);
    stats.step_ns = std::max(times_.step_ns, rank.step_ns);
    stats.wait_ns = rank.wait_ns();
    stats.matmul_ns = rank.ns(engine::Phase::kMatmul);
    stats.attention_ns = rank.ns(engine::Phase::kAttention);
    stats.exchange_ns = rank.ns(engine::Phase::kExchange);
    stats.barrier_ns = rank.ns(engine::Phase::kBarrier);
    stats.weight_bytes = rank.weight_bytes;
    stats.threads = rank.threads;
    stats.expert_use = backend_.expert_use();
    if (rank.layers > 0)
      stats.waits_per_layer =
          static_cast<double>(rank.layer_waits) / static_cast<double>(rank.layers);
  }

  proto::PlacementReply placement() const override { return backend_.placement(); }

  /// Calls `turn`; what it takes beside a step is choosing tokens and answering, if it runs one.
  template <class Turn>
  void time_turn(Turn turn) {
    const base::TimeNs begin = clock_.now();
    const uint64_t step_ns = times_.step_ns;
    turn();
    const uint64_t inside = times_.step_ns - step_ns;
    if (inside > 0) times_.sample_ns += static_cast<uint64_t>(clock_.now() - begin) - inside;
  }

 private:
  Backend& backend_;
  const base::Clock& clock_;
  proto::StatsReply times_;
};

/// Looks now and then whether this worker still has a broker and its place.
class InstanceWatch {
 public:
  InstanceWatch(const WorkerProcessOptions& options, const InstanceMember& member)
      : own_(base::cat(instance_head(options.incarnation, options.rank.group_id), " ")),
        orphan_ns_(options.instance->orphan_ns),
        member_(member),
        head_(member.head()) {}

  enum class Found { kNothingNew, kBrokerLost, kEnd };
  /// Looks a few times a second. kBrokerLost once for each, also if another one has come already,
  /// unless this worker has joined that one since the last look: then `epoch` is another one.
  Found look(base::TimeNs now, uint64_t epoch) {
    if (now < look_at_) return Found::kNothingNew;
    const bool joined = std::exchange(epoch_, epoch) != epoch;
    look_at_ = now + kLookAfter;
    const bool was_orphan = orphan_since_.has_value();
    if (member_.has_broker()) {
      orphan_since_.reset();
    } else if (!was_orphan) {
      orphan_since_ = now;
    }
    std::string head = member_.head();
    // Without a plan somebody has removed the directory, as logind may: that tells nothing.
    if (head.empty()) head = head_;
    const std::string before = std::exchange(head_, std::move(head));
    const bool meant = head_.starts_with(own_);
    if (!meant || (orphan_since_ && now - *orphan_since_ >= orphan_ns_)) return Found::kEnd;
    const bool lost = (orphan_since_ && !was_orphan) || (head_ != before && !joined);
    return lost ? Found::kBrokerLost : Found::kNothingNew;
  }

 private:
  const std::string own_;
  const base::TimeNs orphan_ns_;
  const InstanceMember& member_;
  std::string head_;
  base::TimeNs look_at_ = 0;
  uint64_t epoch_ = 0;  // at the last look
  std::optional<base::TimeNs> orphan_since_;
};

struct ProcessParts {
  Backend& backend;
  proto::Channel& channel;
  const base::Clock& clock;
  const InstanceMember* member;  // nullptr: it is not of an instance
  base::Log& log;
};

class Process {
 public:
  Process(const WorkerProcessOptions& options, const ProcessParts& parts)
      : options_(options),
        backend_(parts.backend),
        channel_(parts.channel),
        clock_(parts.clock),
        log_(parts.log),
        runner_(parts.backend, parts.clock),
        worker_({.node_id = options.node_id,
                 .incarnation = options.incarnation,
                 .rank = options.rank.rank,
                 .rank_count = options.rank.rank_count,
                 .model_fingerprint = parts.backend.fingerprint(),
                 .program_version = options.program_version,
                 .group_id = options.rank.group_id,
                 .repeat_after = kRepeatAfter}) {
    if (parts.member != nullptr) watch_.emplace(options, *parts.member);
  }

  base::Status run() {
    using State = Worker::State;
    while (worker_.state() != State::kStopped && worker_.state() != State::kFailed) {
      if (!look_for_broker()) return {};
      exchange_messages();
      if (worker_.state() == State::kLoading) load();
      if (left_) return {};
      runner_.time_turn([&] {
        worker_.on_tick(clock_.now());
        flush();
      });
      if (worker_.state() == State::kReady && !leads()) {
        follow();
      } else if (!worker_.has_work()) {
        channel_.wait(kIdleWait, {});
      }
    }
    if (worker_.state() == State::kStopped) return {};
    say_farewell();
    return worker_.reason();
  }

 private:
  bool leads() const { return options_.rank.rank == 0; }

  /// False if there is nobody left to work for.
  bool look_for_broker() {
    if (!watch_) return true;
    const InstanceWatch::Found found = watch_->look(clock_.now(), worker_.plan_epoch());
    if (found == InstanceWatch::Found::kBrokerLost) worker_.on_broker_lost();
    left_ = found == InstanceWatch::Found::kEnd;
    return !left_;
  }

  void exchange_messages() {
    flush();
    while (auto received = channel_.receive()) worker_.on_message(received->message, clock_.now());
  }

  void flush() {
    // What cannot be sent now is repeated by the protocol, or was progress that is old by then.
    for (proto::Message& message : worker_.take_outbox())
      [[maybe_unused]] const auto sent = channel_.send(proto::kBroker, std::move(message));
  }

  /// While it loads: tells how far it is, and looks whether anybody wants it still.
  base::Status tell_load(uint64_t done, uint64_t total) {
    const base::TimeNs now = clock_.now();
    const bool ends = done == total && !std::exchange(told_all_, done == total);
    if (!ends && now - told_at_ < kIdleWait) return {};
    told_at_ = now;
    worker_.load_progress(done, total);
    exchange_messages();
    if (!look_for_broker())
      return base::Error{base::Code::kCancelled, "nobody is left to load for"};
    if (worker_.state() == Worker::State::kLoading) return {};
    return base::Error{base::Code::kCancelled, "the broker told this worker to stop"};
  }

  void load() {
    const base::Status loaded =
        backend_.load([this](uint64_t done, uint64_t total) { return tell_load(done, total); });
    if (left_) return;
    if (!loaded.ok()) return worker_.fail(loaded.error());
    if (worker_.state() != Worker::State::kLoading) return;
    worker_.show_placement(runner_);
    const RankReport report = backend_.report();
    if (!report.kv_note.empty()) log_.warning(base::cat("the KV cache is empty: ", report.kv_note));
    proto::Ready ready{.arena_bytes = report.weight_bytes,
                       .kv_bytes = report.kv_bytes,
                       .huge_page_bytes = report.huge_page_bytes,
                       .memory_placement = placement_text(report.bind, options_.rank.os_node),
                       .binding_denied = report.bind == shm::Bind::kDenied,
                       .exchange = report.exchange,
                       .exchange_note = report.exchange_note,
                       .attached_bytes = report.attached_bytes,
                       .content_low = report.content.low,
                       .content_high = report.content.high};
    if (leads()) {
      worker_.lead(
          ready, runner_,
          {.token_count = backend_.token_count(), .sealed_blocks = backend_.sealed_blocks()},
          &runner_);
      return;
    }
    // The broker goes by the leader's shape; a follower only has to state a valid one.
    ready.vocabulary = ready.context = ready.columns_max = 1;
    worker_.loaded(ready, &runner_);
  }

  void follow() {
    const auto ran = backend_.follow(kIdleWait);
    if (ran.ok()) return;
    // A group that ends together looks like a lost peer: what the broker says comes first. It says
    // it to all ranks at once, so it is on its way.
    channel_.wait(kLastWord, {});
    exchange_messages();
    worker_.fail(ran.error());
  }

  void say_farewell() {
    const base::TimeNs end = clock_.now() + kFarewell;
    do {
      flush();
      if (channel_.receive()) return;
      channel_.wait(kIdleWait, {});
    } while (clock_.now() < end);
  }

  const WorkerProcessOptions& options_;
  Backend& backend_;
  proto::Channel& channel_;
  const base::Clock& clock_;
  base::Log& log_;
  TimedRunner runner_;
  Worker worker_;
  std::optional<InstanceWatch> watch_;
  bool left_ = false;  // nobody is left to work for
  base::TimeNs told_at_ = 0;
  bool told_all_ = false;  // that all bytes are there
};

}  // namespace

namespace {

/// The same; an error is logged, because the broker cannot be told.
template <class Value>
base::Result<Value> logged(base::Result<Value> result, base::Log& log) {
  if (!result.ok()) log.error(result.error().message);
  return result;
}

struct Surroundings {
  const BackendFactory& factory;
  const base::Clock& clock;
  base::Log& log;
};

base::Status run_rank(const WorkerProcessOptions& options, const Surroundings& around,
                      const InstanceMember* member) {
  ASSIGN_OR_RETURN(
      const auto channel,
      logged(proto::connect_worker({.endpoint = options.endpoint},
                                   proto::peer_name(options.node_id, options.incarnation)),
             around.log));
  ASSIGN_OR_RETURN(const auto backend, logged(around.factory(options.rank), around.log));
  const base::Status ended = Process(options, {.backend = *backend,
                                               .channel = *channel,
                                               .clock = around.clock,
                                               .member = member,
                                               .log = around.log})
                                 .run();
  // Nobody is left who could do it.
  if (member != nullptr && !member->has_broker()) backend->release_weights();
  return ended;
}

}  // namespace

base::Status run_worker_process(const WorkerProcessOptions& options, const BackendFactory& factory,
                                const base::Clock& clock, base::Log& log) {
  const Surroundings around{factory, clock, log};
  if (!options.instance) return run_rank(options, around, nullptr);
  // First of all: who looks for survivors must see all of them.
  ASSIGN_OR_RETURN(
      InstanceMember member,
      logged(InstanceMember::join(options.instance->directory, options.rank.rank), log));
  const base::Status ended = run_rank(options, around, &member);
  member.leave(options.endpoint);
  return ended;
}

}  // namespace worker
