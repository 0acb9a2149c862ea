#include "cli/serve_loop.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "cli/progress.h"

namespace cli {

namespace {

constexpr base::TimeNs kMillisecond = 1'000'000;
constexpr base::TimeNs kSecond = 1000 * kMillisecond;
constexpr int kStartFailuresMax = 3;
constexpr int kDelaySecondsMax = 30;
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

int delay_seconds(int failures) {
  return failures >= 5 ? kDelaySecondsMax : std::min(1 << failures, kDelaySecondsMax);
}

}  // namespace

ServeLoop::ServeLoop(ServeLoopOptions options, ServeLoopParts parts)
    : options_(std::move(options)), parts_(parts), reception_(parts.gate, options_.slots_max) {
  options_.cluster.when_a_worker_ends = {};
  // Those that were cancelled and have not ended yet are not counted here.
  options_.cluster.requests_max = 4 * options_.slots_max;
  set_status();
}

base::Status ServeLoop::run() {
  while (true) {
    auto loop = ClusterLoop::start(options_.cluster, parts_.factory, parts_.signals, parts_.log);
    options_.cluster.before_loading = {};  // it was said
    base::Error error;
    if (loop.ok()) {
      const auto ended = live(**loop);
      if (ended.ok()) return finish(*ended);
      error = ended.error();
      for (broker::Event& event : (*loop)->take_events()) reception_.on_event(event);
    } else {
      error = loop.error();
    }
    reception_.lose_all(error);
    if (gives_up(error, loop.ok())) return error;
    const int delay = delay_seconds(failures_++);
    parts_.log.warning(
        base::cat(error.message, "; the workers are started again in ", delay, " s"));
    status_.state = drained_by_ ? State::kDraining : State::kRestarting;
    status_.reason = error.message;
    status_.bytes_done = status_.bytes_total = 0;
    status_.retry_seconds = delay + 1;
    set_status();
    if (loop.ok()) loop->reset();
    const Ended ended = pause(delay * kSecond);
    if (ended != Ended::kNo) return finish(ended);
  }
}

bool ServeLoop::gives_up(const base::Error& error, bool has_started) const {
  if (was_ready_) return false;
  return !has_started || is_final(error.code) || failures_ + 1 >= kStartFailuresMax;
}

base::Result<ServeLoop::Ended> ServeLoop::live(ClusterLoop& loop) {
  Progress progress(stderr, style_for(stderr), "loading");
  bool ready = false;
  const int watched[] = {parts_.gate.descriptor()};
  while (true) {
    loop.wait(watched);
    if (const Ended ended = end(); ended != Ended::kNo) return ended;
    RETURN_IF_ERROR(loop.step());
    for (broker::Event& event : loop.take_events()) reception_.on_event(event);
    if (const auto loaded = loop.progress(); loaded && !ready)
      progress.update(loaded->first, loaded->second, "MB");
    if (!ready && loop.broker().ready()) {
      ready = true;
      progress.finish();
      failures_ = 0;
      parts_.log.info(was_ready_ ? "the workers are ready again" : options_.when_ready);
      was_ready_ = true;
    }
    update_status(loop);
    reception_.take(&loop.broker(), loop.now());
    if (reception_.live_slots() == 0)
      loop.begin_watch();
    else
      RETURN_IF_ERROR(loop.watch_leader());
  }
}

ServeLoop::Ended ServeLoop::pause(base::TimeNs duration) {
  const base::TimeNs until = clock_.now() + duration;
  while (clock_.now() < until) {
    pollfd watched[] = {{parts_.signals.descriptor(), POLLIN, 0},
                        {parts_.gate.descriptor(), POLLIN, 0}};
    poll(watched, 2, 50);
    reception_.take(nullptr, clock_.now());
    if (const Ended ended = end(); ended != Ended::kNo) return ended;
  }
  return Ended::kNo;
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
  const auto loaded = loop.progress().value_or(std::pair<uint64_t, uint64_t>());
  status_.bytes_done = loaded.first;
  status_.bytes_total = loaded.second;
  status_.retry_seconds = 2;
  if (loop.is_ready()) {
    status_.state = State::kReady;
    status_.reason.clear();
    status_.context = loop.ready(0).context;
    status_.vocabulary = loop.ready(0).vocabulary;
  }
  if (drained_by_) status_.state = State::kDraining;
  set_status();
}

void ServeLoop::set_status() {
  parts_.gate.set_status(status_);
}

}  // namespace cli
