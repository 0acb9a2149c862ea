// Who of the workers has said something, and who is silent for too long.
//
// While there is work only the leader can be judged: it answers between its steps, followers say
// nothing as long as steps come. Without work all of them say every few seconds that they are
// there. Plain logic over times that its owner gives. Thread rule: one thread.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"

namespace cli {

/// Whether a leader has something to say.
enum class Work { kSome, kNone };

class SilenceWatch {
 public:
  explicit SilenceWatch(base::TimeNs silence_max) : silence_max_(silence_max) {}

  /// From now on these ranks have something to say.
  void begin(int ranks, base::TimeNs now);
  void on_heard(int rank, base::TimeNs now) { heard_at_[static_cast<size_t>(rank)] = now; }
  /// The owner is about to wait, at most for `wait`. If it did not run for much longer than it
  /// wanted to, stopped or asleep, it may not have heard what was said meanwhile.
  void on_turn(base::TimeNs now, base::TimeNs wait);

  struct Silence {
    int rank = 0;
    base::TimeNs duration = 0;
  };
  /// The first rank that is silent for too long.
  std::optional<Silence> check(Work work, base::TimeNs now);
  /// How long the rank is silent that has been so for longest, of those that have something to say;
  /// nothing if that is short: a step may take so long. REQUIRES: check() has said nothing now.
  std::optional<Silence> notable(base::TimeNs now) const;
  /// True now and then while the leader is silent: it should be asked for a sign of life.
  bool wants_probe(base::TimeNs now);

 private:
  size_t judged() const { return work_ == Work::kSome ? 1 : heard_at_.size(); }

  const base::TimeNs silence_max_;
  Work work_ = Work::kNone;
  std::vector<base::TimeNs> heard_at_;  // by rank
  base::TimeNs probed_at_ = 0;
  std::optional<base::TimeNs> turn_by_;  // when the owner wanted to be back
};

}  // namespace cli
