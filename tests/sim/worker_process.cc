#include "tests/sim/worker_process.h"

#include <algorithm>

#include "base/cat.h"

namespace sim {

namespace {

constexpr base::TimeNs kIdleWait = 50 * kMs;
constexpr base::TimeNs kJoinPoll = 20 * kMs;
constexpr base::TimeNs kWatchEvery = 500 * kMs;

}  // namespace

base::Result<engine::StepOutput> SimRunner::run(const engine::Step& step) {
  RETURN_IF_ERROR(may_run_(false));
  columns_ += step.columns.size();
  engine::Step changed = step;
  if (world_.plant.step) world_.plant.step(changed);
  auto output = memory_.runner.run(changed);
  // In the middle of it: the pool was written to.
  if (world_.scenario.killers > 0 && kills(step)) RETURN_IF_ERROR(may_run_(true));
  return output;
}

bool SimRunner::kills(const engine::Step& step) {
  bool kills = false;
  for (const engine::Column& column : step.columns) {
    const int32_t block = step.block_tables[static_cast<size_t>(column.sequence)][0];
    if (column.position == 0 && column.token != kKillerToken) memory_.cursed.erase(block);
    if (column.position == 0 && column.token == kKillerToken) memory_.cursed.insert(block);
    kills = kills ||
            (column.position == world_.scenario.kill_position && memory_.cursed.contains(block));
  }
  return kills;
}

WorkerProcess::WorkerProcess(const World& world, Wire& wire, Random& random, const Birth& birth,
                             Others others)
    : world_(world),
      wire_(wire),
      random_(random),
      birth_(birth),
      name_(proto::peer_name(node_name(birth.rank), birth.incarnation)),
      others_(std::move(others)),
      channel_(wire.connect(name_)),
      runner_(world, *birth.memory, [this](bool kills) { return may_run(kills); }),
      worker_({.node_id = node_name(birth.rank),
               .incarnation = birth.incarnation,
               .rank = birth.rank,
               .rank_count = world.scenario.ranks,
               .model_fingerprint = "model",
               .group_id = base::cat("group ", birth.generation)}),
      step_min_(world.scenario.step_max / 10),
      step_max_(world.scenario.step_max),
      tick_at_(world.clock.now()),
      load_fails_(random.chance(world.scenario.load_fails)) {}

base::TimeNs WorkerProcess::wake() const {
  if (killed_) return world_.clock.now();
  base::TimeNs wake = tick_at_;
  if (const auto arrival = wire_.next_arrival(name_)) wake = std::min(wake, *arrival);
  return std::max({wake, busy_until_, stalled_until_});
}

base::Status WorkerProcess::may_run(bool kills) {
  if (kills && (world_.scenario.kills_leader || world_.scenario.ranks == 1)) {
    killed_ = true;
  } else if (kills) {
    others_.kill(1);
  }
  if (std::exchange(fail_next_step_, false))
    return base::Error{base::Code::kTimeout, "a rank did not finish its step in time"};
  if (!others_.intact(loaded_in_)) {
    world_.checker.expect(!others_.joined(worker_.plan_epoch()),
                          "ranks that did not load together are one group");
    return base::Error{base::Code::kPeerLost, "a rank is gone"};
  }
  if (kills) return base::Error{base::Code::kPeerLost, "a rank was killed in this step"};
  return {};
}

void WorkerProcess::watch() {
  const base::TimeNs now = world_.clock.now();
  if (!world_.scenario.watches || now < watch_at_) return;
  watch_at_ = now + kWatchEvery;
  if (!others_.has_broker()) worker_.on_broker_lost();
}

void WorkerProcess::flush() {
  for (proto::Message& message : worker_.take_outbox()) unsent_.push_back(std::move(message));
  if (world_.plant.outbox) world_.plant.outbox(unsent_);
  for (proto::Message& message : unsent_) {
    if (sends_left_ && --*sends_left_ < 0) {
      ended_ = true;
      break;
    }
    // What cannot be sent now is sent again by the protocol.
    [[maybe_unused]] const auto sent =
        wire_.send(*channel_, birth_.rank, proto::kBroker, std::move(message));
  }
  unsent_.clear();
}

void WorkerProcess::load() {
  const base::TimeNs now = world_.clock.now();
  if (!loaded_at_) {
    loaded_in_ = worker_.plan_epoch();
    worker_.load_progress(0, 10);
    loaded_at_ = now + random_.between(0, world_.scenario.load_max);
    join_deadline_ = *loaded_at_ + world_.scenario.join_max;
    busy_until_ = *loaded_at_;
    return;
  }
  if (load_fails_) return worker_.fail({base::Code::kNoSpace, "the arena directory is full"});
  if (world_.scenario.ranks_meet && !others_.met(worker_.plan_epoch())) {
    if (now > *join_deadline_)
      return worker_.fail({base::Code::kTimeout, "the other ranks did not come"});
    busy_until_ = now + kJoinPoll;
    return;
  }
  worker_.load_progress(10, 10);
  if (leads()) {
    worker::LeaderOptions options = world_.scenario.leader;
    if (world_.scenario.keeps_kv) options.sealed_blocks = &birth_.memory->sealed;
    worker_.lead({}, runner_, options, nullptr);
  } else {
    worker_.loaded({.vocabulary = 1, .context = 1, .columns_max = 1});
  }
}

void WorkerProcess::run() {
  using State = worker::Worker::State;
  const base::TimeNs now = world_.clock.now();
  tick_at_ = now + kIdleWait;
  if (killed_) {
    ended_ = true;
    return;
  }
  flush();  // of the step that is over
  if (ended_) return;
  watch();
  const bool loading = worker_.state() == State::kLoading && loaded_at_;
  while (!loading) {
    const auto received = wire_.receive(*channel_, birth_.rank);
    if (!received) break;
    worker_.on_message(received->message, now);
  }
  if (worker_.state() == State::kLoading) load();
  flush();
  if (ended_) return;
  worker_.on_tick(now);
  if (killed_) {
    ended_ = true;
    return;
  }
  if (worker_.state() == State::kReady && !leads() && world_.scenario.followers_notice &&
      !others_.intact(loaded_in_))
    worker_.fail({base::Code::kPeerLost, "a rank is gone"});
  const size_t columns = runner_.take_columns();
  const bool has_ended = worker_.state() == State::kStopped || worker_.state() == State::kFailed;
  if (columns > 0 && !has_ended) {
    busy_until_ = now + random_.between(step_min_, step_max_);
    tick_at_ = busy_until_;
    return;
  }
  flush();
  ended_ = ended_ || has_ended;
  if (worker_.has_work()) tick_at_ = now + kMs;
  if (const worker::Leader* leader = worker_.leader()) world_.checker.on_leader(*leader);
}

}  // namespace sim
