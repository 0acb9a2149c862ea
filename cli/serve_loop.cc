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

constexpr base::TimeNs kMillisecond = 1'000'000;
constexpr base::TimeNs kSecond = 1000 * kMillisecond;
constexpr int kStartFailuresMax = 3;
constexpr int kDelaySecondsMax = 30;
// A group that lived for so long does not make the next start wait.
constexpr base::TimeNs kSoon = 10 * kSecond;
// For the last words of answers that did not end in time.
constexpr base::TimeNs kGoodbyeTime = kSecond;

using State = broker::GroupStatus::State;

/// Whether trying again without a change is in vain.
bool is_final(base::Code code) {
  switch (code) {
    case base::Code::kInvalidArgument:
    case base::Code::kBrokenFile:
    case base::Code::kUnsupported:
    case base::Code::kNotFound:
    case base::Code::kNoSpace: return true;
    default: return false;
  }
}

/// Before the start after `losses` others that came soon one after the other.
int delay_seconds(int losses) {
  if (losses == 0) return 0;
  return losses > 5 ? kDelaySecondsMax : std::min(1 << (losses - 1), kDelaySecondsMax);
}

std::string tenths(base::TimeNs duration) {
  const base::TimeNs count = duration / (100 * kMillisecond);
  return base::cat(count / 10, ".", count % 10);
}

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
  set_status();
}

base::Status ServeLoop::run() {
  ASSIGN_OR_RETURN(const auto loop, ClusterLoop::start(options_.cluster, parts_.factory,
                                                       parts_.signals, parts_.log));
  const auto ended = live(*loop);
  if (ended.ok()) return finish(*ended);
  reception_.lose_all(ended.error());
  return ended.error();
}

base::Result<ServeLoop::Ended> ServeLoop::live(ClusterLoop& loop) {
  const int watched[] = {parts_.gate.descriptor()};
  while (true) {
    loop.wait(watched);
    if (const Ended ended = end(); ended != Ended::kNo) return ended;
    base::Status going = loop.step();
    take_events(loop);
    if (going.ok() && loop.is_ready()) {
      if (!ready_) on_ready(loop);
      going = loop.watch(reception_.live_slots() > 0 ? Work::kSome : Work::kNone);
      if (!going.ok()) status_.stalled = true;
    }
    if (!going.ok()) RETURN_IF_ERROR(on_loss(loop, going.error()));
    RETURN_IF_ERROR(start_when_down(loop));
    update_status(loop);
    reception_.take(&loop.broker(), loop.now());
    watch_.step(&loop.broker(), loop.now(), reception_.live_slots());
  }
}

void ServeLoop::take_events(ClusterLoop& loop) {
  for (broker::Event& event : loop.take_events()) {
    // It moves on after all.
    if (std::holds_alternative<broker::TokenEvent>(event)) status_.stalled = false;
    watch_.on_event(event);
    reception_.on_event(event);
  }
  if (reception_.live_slots() == 0) status_.stalled = false;
}

void ServeLoop::on_ready(ClusterLoop& loop) {
  ready_ = true;
  ready_at_ = loop.now();
  failures_ = 0;
  progress_.finish();
  parts_.log.info(was_ready_ ? base::cat("the workers are ready again, ",
                                         tenths(ready_at_ - lost_at_), " s after they were lost")
                             : options_.when_ready);
  was_ready_ = true;
  watch_.on_ready(rank_statuses(loop), loop.broker());
}

base::Status ServeLoop::on_loss(ClusterLoop& loop, const base::Error& error) {
  loop.give_up(error);
  take_events(loop);
  lost_at_ = loop.now();
  start_at_ = lost_at_;
  told_ = false;
  status_.reason = error.message;
  status_.bytes_done = status_.bytes_total = 0;
  if (ready_ && lost_at_ - ready_at_ >= kSoon) losses_ = 0;
  // Those of another server may be in any state; ours say nothing about the next ones then.
  const bool ours = ready_ || !loop.has_adopted();
  if (!std::exchange(ready_, false) && ours) failures_++;
  if (!was_ready_ && (is_final(error.code) || failures_ >= kStartFailuresMax)) return error;
  if (failures_ >= kStartFailuresMax) loop.broker().end_all(error);
  if (ours) start_at_ += delay_seconds(losses_++) * kSecond;
  return {};
}

base::Status ServeLoop::start_when_down(ClusterLoop& loop) {
  if (!loop.is_down()) return {};
  if (!std::exchange(told_, true)) {
    status_.reason = loop.cause().message;
    const base::TimeNs delay = std::max<base::TimeNs>(start_at_ - lost_at_, 0) / kSecond;
    parts_.log.warning(base::cat(status_.reason, "; the workers are started again",
                                 delay > 0 ? base::cat(" in ", delay, " s") : ""));
  }
  if (loop.now() < start_at_) return {};
  const base::Status started = loop.start_again();
  return started.ok() ? started : on_loss(loop, started.error());
}

ServeLoop::Ended ServeLoop::end() {
  if (!parts_.signals.asked_to_end()) return Ended::kNo;
  if (parts_.signals.ending_signals() > 1) return Ended::kCut;
  if (!drained_by_) {
    drained_by_ = clock_.now() + options_.drain_time;
    parts_.server.drain();
    status_.state = State::kDraining;
    set_status();
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

void ServeLoop::update_status(const ClusterLoop& loop) {
  if (loop.is_ready()) {
    status_.state = State::kReady;
    status_.reason.clear();
    status_.context = loop.ready(0).context;
    status_.vocabulary = loop.ready(0).vocabulary;
  } else {
    status_.state = was_ready_ || !status_.reason.empty() ? State::kRestarting : State::kLoading;
    const auto loaded = loop.progress().value_or(std::pair<uint64_t, uint64_t>());
    if (loaded.second > 0) progress_.update(loaded.first, loaded.second, "MB");
    status_.bytes_done = loaded.first;
    status_.bytes_total = loaded.second;
  }
  const base::TimeNs pause = std::max<base::TimeNs>(start_at_ - loop.now(), 0);
  status_.retry_seconds = static_cast<int>(pause / kSecond) + 2;
  if (drained_by_) status_.state = State::kDraining;
  set_status();
}

void ServeLoop::set_status() {
  parts_.gate.set_status(status_);
}

}  // namespace cli
