#include "cli/served_group.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"

namespace cli {

namespace {

constexpr base::TimeNs kMillisecond = 1'000'000;
constexpr base::TimeNs kSecond = 1000 * kMillisecond;
constexpr int kStartFailuresMax = 3;
constexpr int kDelaySecondsMax = 30;
// A group that lived for so long does not make the next start wait.
constexpr base::TimeNs kSoon = 10 * kSecond;

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

base::Status ServedGroup::step(Others others) {
  base::Status going = loop_->step();
  collect_events();
  if (going.ok() && loop_->is_ready()) {
    if (!ready_) on_ready();
    going = loop_->watch(loop_->broker().live_requests() > 0 ? Work::kSome : Work::kNone);
    if (!going.ok()) status_.stalled = true;
  }
  if (!going.ok()) RETURN_IF_ERROR(on_loss(going.error(), others));
  RETURN_IF_ERROR(start_when_down(others));
  update_status();
  return {};
}

void ServedGroup::collect_events() {
  for (broker::Event& event : loop_->take_events()) {
    // It moves on after all.
    if (std::holds_alternative<broker::TokenEvent>(event)) status_.stalled = false;
    events_.push_back(std::move(event));
  }
  if (loop_->broker().live_requests() == 0) status_.stalled = false;
}

void ServedGroup::on_ready() {
  ready_ = new_ready_ = true;
  ready_at_ = loop_->now();
  failures_ = 0;
  if (was_ready_) {
    log_.info(base::cat(name_, "the workers are ready again, ", tenths(ready_at_ - lost_at_),
                        " s after they were lost"));
  } else if (!name_.empty()) {
    log_.info(base::cat(name_, "ready"));
  }
  was_ready_ = true;
}

base::Status ServedGroup::on_loss(const base::Error& error, Others others) {
  loop_->give_up(error);
  collect_events();
  lost_at_ = loop_->now();
  start_at_ = lost_at_;
  told_ = false;
  status_.reason = error.message;
  status_.bytes_done = status_.bytes_total = 0;
  if (ready_ && lost_at_ - ready_at_ >= kSoon) losses_ = 0;
  // Those of another server may be in any state; ours say nothing about the next ones then.
  const bool ours = ready_ || !loop_->has_adopted();
  if (!std::exchange(ready_, false) && ours) failures_++;
  const bool in_vain = is_final(error.code) || failures_ >= kStartFailuresMax;
  if (in_vain && !was_ready_ && others == Others::kNone) return error;
  if (failures_ >= kStartFailuresMax) loop_->broker().end_all(error);
  if (ours) start_at_ += delay_seconds(losses_++) * kSecond;
  return {};
}

base::Status ServedGroup::start_when_down(Others others) {
  if (!loop_->is_down()) return {};
  if (!std::exchange(told_, true)) {
    status_.reason = loop_->cause().message;
    const base::TimeNs delay = std::max<base::TimeNs>(start_at_ - lost_at_, 0) / kSecond;
    log_.warning(base::cat(name_, status_.reason, "; the workers are started again",
                           delay > 0 ? base::cat(" in ", delay, " s") : ""));
  }
  if (loop_->now() < start_at_) return {};
  const base::Status started = loop_->start_again();
  return started.ok() ? started : on_loss(started.error(), others);
}

void ServedGroup::update_status() {
  if (loop_->is_ready()) {
    status_.state = State::kReady;
    status_.reason = loop_->silence();
    status_.bytes_done = status_.bytes_total;
    status_.context = loop_->ready(0).context;
    status_.vocabulary = loop_->ready(0).vocabulary;
  } else {
    status_.state = was_ready_ || !status_.reason.empty() ? State::kRestarting : State::kLoading;
    const auto loaded = loop_->progress().value_or(std::pair<uint64_t, uint64_t>());
    status_.bytes_done = loaded.first;
    status_.bytes_total = loaded.second;
  }
  const base::TimeNs pause = std::max<base::TimeNs>(start_at_ - loop_->now(), 0);
  status_.retry_seconds = static_cast<int>(pause / kSecond) + 2;
}

}  // namespace cli
