#include "engine/roster.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace engine {

namespace {

// A thread that waits for its CPU for a larger share of the time is crowded.
constexpr double kCrowded = 0.2;
// How much slower than an equal share the rest may be without the crowded threads: products that
// wait for memory lose less than their number says.
constexpr double kSlack = 0.15;

}  // namespace

Roster::Roster(std::span<const int> cpus, int cpu_count, const RosterOptions& options)
    : threads_(static_cast<int>(cpus.size())), options_(options), retry_ns_(options.retry_min_ns) {
  CHECK(threads_ >= 1);
  int unpinned = 0;
  for (int t = 0; t < threads_; t++) {
    const int cpu = cpus[static_cast<size_t>(t)];
    const auto shares_cpu = [&](int other) { return cpus[static_cast<size_t>(other)] == cpu; };
    if (cpu < 0 ? unpinned++ < std::max(cpu_count, 1)
                : std::none_of(able_.begin(), able_.end(), shares_cpu))
      able_.push_back(t);
  }
  members_ = able_;
  crowded_.reserve(able_.size());
  delay_at_begin_.reserve(cpus.size());
  busy_ns_.resize(cpus.size());
}

bool Roster::on_step(uint64_t step_ns, size_t count) {
  if (able_.size() == 1) return false;
  for (size_t i = 0; i < count; i++) busy_ns_[static_cast<size_t>(members_[i])] += step_ns;
  window_ns_ += step_ns;
  if (members_.size() == able_.size())
    return window_ns_ >= options_.window_ns || delay_at_begin_.empty();
  out_ns_ += step_ns;
  return out_ns_ >= retry_ns_;
}

void Roster::begin_window(std::span<const uint64_t> delay_ns) {
  delay_at_begin_.assign(delay_ns.begin(), delay_ns.end());
  std::ranges::fill(busy_ns_, 0);
  window_ns_ = 0;
}

bool Roster::judge(std::span<const uint64_t> delay_ns) {
  CHECK(static_cast<int>(delay_ns.size()) == threads_);
  if (members_.size() < able_.size()) {
    members_ = able_;
    begin_window(delay_ns);
    return true;
  }
  if (delay_at_begin_.empty()) {
    begin_window(delay_ns);
    return false;
  }
  crowded_.clear();
  double most = 0;
  for (const int t : members_) {
    const auto i = static_cast<size_t>(t);
    // Of a few steps a share says little.
    if (busy_ns_[i] == 0 || busy_ns_[i] < window_ns_ / 4) continue;
    const double share =
        static_cast<double>(delay_ns[i] - delay_at_begin_[i]) / static_cast<double>(busy_ns_[i]);
    if (share > kCrowded) crowded_.push_back(t);
    most = std::max(most, share);
  }
  const auto all = static_cast<double>(members_.size());
  const double rest = (all - static_cast<double>(crowded_.size())) / all;
  // Where all are crowded nobody's place is better.
  const bool pays = !crowded_.empty() && rest > 0 && 1 - most <= rest + kSlack;
  if (pays) leave_out(crowded_);
  if (crowded_.empty()) retry_ns_ = options_.retry_min_ns;
  begin_window(delay_ns);
  return pays;
}

void Roster::leave_out(std::span<const int> crowded) {
  members_.clear();
  std::set_difference(able_.begin(), able_.end(), crowded.begin(), crowded.end(),
                      std::back_inserter(members_));
  out_ns_ = 0;
  retry_ns_ = std::min(2 * retry_ns_, options_.retry_max_ns);
}

}  // namespace engine
