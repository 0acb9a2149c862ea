#include "cli/serve_loop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/cat.h"
#include "cli/options.h"

namespace cli {

namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;
// For the last words of answers that did not end in time.
constexpr base::TimeNs kGoodbyeTime = kSecond;

using State = broker::GroupStatus::State;

}  // namespace

ServeLoop::ServeLoop(ServeLoopOptions options, ServeLoopParts parts)
    : options_(std::move(options)),
      parts_(parts),
      reception_(parts.gate, options_.slots_max),
      watch_({parts.gate, parts.log,
              [](const std::string& table) { std::fputs(table.c_str(), stderr); }},
             {.version = version(),
              .pid = getpid(),
              .started_at = clock_.now(),
              .answers_max = options_.slots_max}),
      progress_(stderr, style_for(stderr), "loading") {
  options_.cluster.when_a_worker_ends = {};
  // Those that were cancelled and have not ended yet are not counted here.
  options_.cluster.requests_max = 4 * options_.slots_max;
  parts_.gate.set_status({.groups = static_cast<int>(options_.groups.size())});
}

base::Status ServeLoop::run() {
  RETURN_IF_ERROR(start_groups());
  const auto ended = live();
  // All are told before the first one is waited for.
  for (const auto& group : groups_) group->loop().shut_down();
  if (ended.ok()) return finish(*ended);
  reception_.lose_all(ended.error());
  return ended.error();
}

base::Status ServeLoop::start_groups() {
  const size_t count = options_.groups.size();
  std::vector<ClusterLoop*> loops;
  std::vector<ServedGroup*> groups;
  std::vector<broker::Broker*> brokers;
  for (size_t index = 0; index < count; index++) {
    ClusterOptions own = options_.cluster;
    own.placement = options_.groups[index];
    if (count > 1) own.instance = base::cat("-", index, "of", count);
    own.is_first = index == 0;
    if (index > 0) own.before_loading = {};
    ASSIGN_OR_RETURN(auto loop,
                     ClusterLoop::open(std::move(own), parts_.factory, parts_.signals, parts_.log));
    loops.push_back(loop.get());
    groups_.push_back(std::make_unique<ServedGroup>(
        std::move(loop), count > 1 ? base::cat("replica ", index, ": ") : "", parts_.log));
    groups.push_back(groups_.back().get());
    brokers.push_back(&groups.back()->loop().broker());
  }
  RETURN_IF_ERROR(ClusterLoop::check_room(loops));
  for (ClusterLoop* const loop : loops) RETURN_IF_ERROR(loop->begin());
  router_.emplace(std::move(brokers));
  watch_.begin(std::move(groups));
  return {};
}

base::Result<ServeLoop::Ended> ServeLoop::live() {
  const int watched[] = {parts_.gate.descriptor()};
  std::vector<ClusterLoop*> loops;
  for (const auto& group : groups_) loops.push_back(&group->loop());
  while (true) {
    ClusterLoop::wait(loops, watched);
    if (const Ended ended = end(); ended != Ended::kNo) return ended;
    RETURN_IF_ERROR(step_groups());
    router_->on_tick(clock_.now());
    update_status();
    reception_.take(&*router_, clock_.now());
    watch_.step(clock_.now(), reception_.live_slots());
  }
}

base::Status ServeLoop::step_groups() {
  for (size_t index = 0; index < groups_.size(); index++) {
    ServedGroup& group = *groups_[index];
    const bool was_down = group.loop().is_down();
    RETURN_IF_ERROR(group.step(was_ready_ ? Others::kHaveAnswered : Others::kNone));
    if (was_down && !group.loop().is_down())
      for (const auto& other : groups_) other->loop().release_removed_weights();
    for (broker::Event& event : group.take_events()) {
      watch_.on_event(index, event);
      router_->on_event(index, event);
      reception_.on_event(event);
    }
  }
  return {};
}

ServeLoop::Ended ServeLoop::end() {
  if (!parts_.signals.asked_to_end()) return Ended::kNo;
  if (parts_.signals.ending_signals() > 1) return Ended::kCut;
  if (!drained_by_) {
    drained_by_ = clock_.now() + options_.drain_time;
    parts_.server.drain();
    update_status();
    if (parts_.server.busy() > 0)
      parts_.log.info(base::cat("ending when ", parts_.server.busy(),
                                " running requests are answered, at most ",
                                options_.drain_time / kSecond, " s; a second signal ends at once"));
  }
  if (parts_.server.busy() == 0 && reception_.live_slots() == 0) return Ended::kDrained;
  if (clock_.now() < *drained_by_) return Ended::kNo;
  parts_.log.warning("requests that still run are given up");
  return Ended::kDrained;
}

base::Status ServeLoop::finish(Ended ended) {
  reception_.lose_all({base::Code::kUnavailable, "the server was told to end; try another one"});
  if (ended == Ended::kCut) return parts_.signals.error();
  const base::TimeNs until = clock_.now() + kGoodbyeTime;
  while (parts_.server.busy() > 0 && clock_.now() < until && parts_.signals.ending_signals() < 2) {
    pollfd watched{parts_.signals.descriptor(), POLLIN, 0};
    poll(&watched, 1, 10);
    parts_.signals.asked_to_end();
    reception_.take(nullptr, clock_.now());
  }
  return {};
}

void ServeLoop::update_status() {
  std::vector<broker::GroupStatus> all;
  bool sizes_known = true;
  for (const auto& group : groups_) {
    all.push_back(group->status());
    sizes_known = sizes_known && all.back().bytes_total > 0;
  }
  broker::GroupStatus status = broker::merged(all);
  const bool loads = status.groups_ready < status.groups;
  // Before all have told their size the sum would run backwards.
  if (loads && sizes_known) progress_.update(status.bytes_done, status.bytes_total, "MB");
  if (!was_ready_ && status.groups_ready > 0) {
    was_ready_ = true;
    progress_.finish();
    parts_.log.info(options_.when_ready);
  } else if (!loads) {
    progress_.finish();
  }
  if (drained_by_) status.state = State::kDraining;
  parts_.gate.set_status(std::move(status));
}

}  // namespace cli
