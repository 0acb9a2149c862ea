#include "tests/sim/cluster.h"

#include <algorithm>
#include <limits>

#include "base/cat.h"

namespace sim {

namespace {

constexpr base::TimeNs kBrokerTick = 20 * kMs;
constexpr base::TimeNs kNever = std::numeric_limits<base::TimeNs>::max();

}  // namespace

Cluster::Cluster(const World& world)
    : world_(world), random_(world.scenario.seed, Stream::kProcesses), wire_(world) {
  start_broker();
  for (int rank = 0; rank < world.scenario.ranks; rank++) start_worker(rank);
}

void Cluster::note(int who, const char* what, uint64_t number) {
  world_.trace.add({.at = world_.clock.now(), .who = who, .what = what, .numbers = {number}});
}

bool Cluster::all_ranks(uint64_t epoch,
                        const std::function<bool(const worker::Worker&)>& is) const {
  for (int rank = 0; rank < world_.scenario.ranks; rank++) {
    const auto found = workers_.find(rank);
    if (found == workers_.end()) return false;
    const worker::Worker& worker = found->second->worker();
    if (worker.plan_epoch() != epoch || !is(worker)) return false;
  }
  return true;
}

void Cluster::start_worker(int rank) {
  using State = worker::Worker::State;
  const uint64_t incarnation = ++incarnations_;
  note(rank, "starts as incarnation", incarnation);
  const auto is_ready = [](const worker::Worker& w) { return w.state() == State::kReady; };
  const auto is_there = [=](const worker::Worker& w) {
    return w.state() == State::kLoading || is_ready(w);
  };
  if (rank == 0 && (!memory_ || !world_.scenario.keeps_kv || random_.chance(0.2))) {
    memory_ = std::make_unique<Memory>(Memory{
        .runner = worker::ScriptedRunner(world_.scenario.runner), .sealed = {}, .cursed = {}});
    memory_->sealed.confused = world_.plant.sealed;
  }
  if (!world_.scenario.together) generation_++;
  workers_[rank] = std::make_unique<WorkerProcess>(
      world_, wire_, random_,
      WorkerProcess::Birth{.rank = rank,
                           .incarnation = incarnation,
                           .generation = generation_,
                           .memory = memory_.get()},
      WorkerProcess::Others{
          .met = [=, this](uint64_t epoch) { return all_ranks(epoch, is_there); },
          .joined = [=, this](uint64_t epoch) { return all_ranks(epoch, is_ready); },
          .intact =
              [this](uint64_t epoch) {
                const auto count = std::count_if(
                    workers_.begin(), workers_.end(),
                    [&](const auto& worker) { return worker.second->loaded_in() == epoch; });
                return count == world_.scenario.ranks;
              },
          .has_broker = [this] { return broker_ != nullptr; },
          .kill = [this](int victim) { workers_.at(victim)->die(); }});
  if (healed_) workers_[rank]->heal();
}

void Cluster::end_worker(int rank) {
  note(rank, "ends");
  const base::TimeNs now = world_.clock.now();
  if (random_.chance(world_.scenario.told))
    notices_.push_back({now + random_.between(0, kSecond), workers_.at(rank)->name()});
  const bool breaks_group = workers_.at(rank)->generation() == generation_;
  workers_.erase(rank);
  if (world_.scenario.together && restarting_ && breaks_group) {
    generation_++;
    for (const auto& [other, process] : workers_) process->die();
  }
  if (restarting_) restarts_[rank] = now + random_.between(0, world_.scenario.restart_max);
}

void Cluster::run_worker(int rank) {
  WorkerProcess& process = *workers_.at(rank);
  process.run();
  if (process.ended()) end_worker(rank);
}

void Cluster::start_broker() {
  broker_restart_.reset();
  broker_sends_left_.reset();
  // A socket may outlive the state of its broker or not; both are sound.
  if (!broker_channel_ || random_.chance(0.5)) {
    broker_channel_.reset();
    broker_channel_ = wire_.connect(std::string(proto::kBroker));
  }
  broker::BrokerOptions options = world_.scenario.broker;
  options.incarnation = ++broker_incarnation_;
  options.adopt = world_.scenario.adopts && broker_incarnation_ > 1;
  adopts_until_ = world_.clock.now() + world_.scenario.adopt_within;
  note(-1, "starts as incarnation", broker_incarnation_);
  broker_ = std::make_unique<broker::Broker>(options);
  broker_tick_at_ = world_.clock.now();
  if (world_.scenario.very_late > 0 && random_.chance(0.5))
    for (const auto& [rank, process] : workers_) process->repeat_hello();
}

void Cluster::end_broker() {
  note(-1, "ends");
  broker_.reset();
  notices_.clear();
  world_.checker.on_broker_lost();
  broker_restart_ = world_.clock.now() + random_.between(0, world_.scenario.restart_max);
}

base::TimeNs Cluster::broker_wake() const {
  if (!broker_) return broker_restart_.value_or(kNever);
  base::TimeNs wake = broker_tick_at_;
  if (const auto arrival = wire_.next_arrival(proto::kBroker)) wake = std::min(wake, *arrival);
  for (const Notice& notice : notices_) wake = std::min(wake, notice.at);
  return std::max(wake, broker_stalled_until_);
}

base::TimeNs Cluster::next_event() const {
  base::TimeNs next = broker_wake();
  for (const auto& [rank, process] : workers_) next = std::min(next, process->wake());
  for (const auto& [rank, at] : restarts_) next = std::min(next, at);
  return next;
}

void Cluster::run_due() {
  const base::TimeNs now = world_.clock.now();
  if (broker_wake() <= now) {
    if (broker_) {
      run_broker();
    } else {
      start_broker();
    }
  }
  for (int rank = 0; rank < world_.scenario.ranks; rank++) {
    if (const auto found = workers_.find(rank); found != workers_.end()) {
      if (found->second->wake() <= now) run_worker(rank);
    } else if (const auto restart = restarts_.find(rank);
               restart != restarts_.end() && restart->second <= now) {
      restarts_.erase(restart);
      start_worker(rank);
    }
  }
}

// What comes from another epoch must change nothing, except that a hello is answered.
void Cluster::hear(const proto::Received& received) {
  const auto parsed = proto::parse(received.message);
  const bool stale = parsed.ok() && !std::holds_alternative<proto::Hello>(parsed->body) &&
                     parsed->header.plan_epoch != broker_->plan_epoch();
  const bool was_ready = broker_->ready();
  const int live = broker_->live_requests();
  const uint64_t epoch = broker_->plan_epoch();
  broker_->on_message(received.peer, received.message, world_.clock.now());
  if (stale)
    world_.checker.expect(was_ready == broker_->ready() && live == broker_->live_requests() &&
                              epoch == broker_->plan_epoch(),
                          "a message of another epoch changed the broker");
}

void Cluster::run_broker() {
  const base::TimeNs now = world_.clock.now();
  broker_tick_at_ = now + kBrokerTick;
  std::erase_if(notices_, [&](const Notice& notice) {
    if (notice.at > now) return false;
    broker_->on_peer_lost(notice.name, {base::Code::kPeerLost, "its process has ended"});
    return true;
  });
  while (const auto received = wire_.receive(*broker_channel_, -1)) hear(*received);
  broker_->on_tick(now);
  if (now >= adopts_until_) broker_->give_up_adoption("not all ranks came");
  flush_broker();
}

void Cluster::flush_broker() {
  if (!broker_) return;
  world_.checker.on_epoch(broker_->plan_epoch());
  report_events();
  std::vector<broker::Outgoing> outbox = broker_->take_outbox();
  for (broker::Outgoing& out : outbox) {
    if (broker_sends_left_ && --*broker_sends_left_ < 0) return end_broker();
    const auto sent = wire_.send(*broker_channel_, -1, out.peer, std::move(out.message));
    if (!sent.ok()) broker_->on_peer_lost(out.peer, sent.error());
  }
  report_events();
  world_.checker.on_broker(*broker_);
}

void Cluster::report_events() {
  std::vector<broker::Event> events = broker_->take_events();
  if (world_.plant.events) world_.plant.events(events);
  for (const broker::Event& event : events) world_.checker.on_event(event, *broker_);
}

void Cluster::heal(double lost) {
  wire_.heal(lost);
  broker_sends_left_.reset();
  healed_ = true;
  for (const auto& [rank, process] : workers_) process->heal();
}

void Cluster::set_step_time(base::TimeNs step) {
  for (const auto& [rank, process] : workers_) process->set_step_time(step);
}

void Cluster::shut_down() {
  restarting_ = false;
  restarts_.clear();
  broker_->shut_down("all is over");
  flush_broker();
}

size_t Cluster::leader_requests() const {
  const auto found = workers_.find(0);
  if (found == workers_.end()) return 0;
  const worker::Leader* leader = found->second->worker().leader();
  return leader == nullptr ? 0 : leader->kept().requests;
}

bool Cluster::quiet() const {
  using State = worker::Worker::State;
  return broker_ && broker_->ready() && broker_->live_requests() == 0 && leader_requests() == 0 &&
         all_ranks(broker_->plan_epoch(),
                   [](const worker::Worker& worker) { return worker.state() == State::kReady; });
}

bool Cluster::has_loaded_since(int rank, uint64_t epoch) const {
  const auto found = workers_.find(rank);
  return found != workers_.end() && found->second->loaded_in() != epoch &&
         found->second->worker().state() == worker::Worker::State::kReady;
}

void Cluster::inject(Fault fault, Random& random) {
  const base::TimeNs now = world_.clock.now();
  const auto rank = static_cast<int>(random.below(static_cast<uint64_t>(world_.scenario.ranks)));
  const base::TimeNs length = random.between(10 * kMs, 5 * kSecond);
  const auto victim = workers_.find(rank);
  world_.trace.add({.at = now,
                    .who = rank,
                    .what = "fault",
                    .detail = fault_name(fault),
                    .numbers = {static_cast<uint64_t>(length / kMs)}});
  switch (fault) {
    case Fault::kWorkerCrash:
      if (victim == workers_.end()) return;
      if (random.chance(0.5)) return end_worker(rank);
      return victim->second->die_after_sends(static_cast<int>(random.below(4)));
    case Fault::kBrokerCrash:
      if (!broker_) return;
      if (random.chance(0.5)) return end_broker();
      broker_sends_left_ = static_cast<int>(random.below(4));
      return;
    case Fault::kPartition: {
      const uint64_t ways = 1 + random.below(3);
      return wire_.cut(rank, {.until = now + length,
                              .from_rank = (ways & 1) != 0,
                              .to_rank = (ways & 2) != 0,
                              .held = random.chance(0.5)});
    }
    case Fault::kDisconnect:
      return wire_.cut(
          rank, {.until = now + length, .from_rank = true, .to_rank = true, .disconnected = true});
    case Fault::kStall:
      if (random.chance(0.3)) {
        broker_stalled_until_ = now + length;
      } else if (victim != workers_.end()) {
        victim->second->stall(now + length);
      }
      return;
    case Fault::kTimeJump: return world_.clock.advance(random.between(kSecond, 3600 * kSecond));
    case Fault::kStepError:
      if (const auto leader = workers_.find(0); leader != workers_.end())
        leader->second->fail_next_step();
      return;
  }
}

}  // namespace sim
