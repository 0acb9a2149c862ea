#include "cli/silence_watch.h"

#include <algorithm>
#include <utility>

namespace cli {

namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;
// Idle workers speak every 5 s.
constexpr base::TimeNs kIdleSilence = 20 * kSecond;
constexpr base::TimeNs kAbsence = kSecond;
// Longer than a step of a large model on a slow machine, and than idle workers are silent.
constexpr base::TimeNs kNotable = 30 * kSecond;
constexpr base::TimeNs kProbesApart = 5 * kSecond;

}  // namespace

void SilenceWatch::begin(int ranks, base::TimeNs now) {
  heard_at_.assign(static_cast<size_t>(ranks), now);
}

void SilenceWatch::on_turn(base::TimeNs now, base::TimeNs wait) {
  if (turn_by_ && now - *turn_by_ > kAbsence)
    for (base::TimeNs& heard_at : heard_at_) heard_at += now - *turn_by_;
  turn_by_ = now + wait;
}

std::optional<SilenceWatch::Silence> SilenceWatch::check(Work work, base::TimeNs now) {
  if (work != std::exchange(work_, work)) begin(static_cast<int>(heard_at_.size()), now);
  const base::TimeNs silence_max =
      work == Work::kSome ? silence_max_ : std::max(silence_max_, kIdleSilence);
  for (size_t rank = 0; rank < judged(); rank++)
    if (now - heard_at_[rank] >= silence_max)
      return Silence{static_cast<int>(rank), now - heard_at_[rank]};
  return std::nullopt;
}

std::optional<SilenceWatch::Silence> SilenceWatch::notable(base::TimeNs now) const {
  const base::TimeNs least =
      std::min(kNotable, (work_ == Work::kSome ? silence_max_ : kIdleSilence) / 2);
  std::optional<Silence> longest;
  for (size_t rank = 0; rank < judged(); rank++) {
    const base::TimeNs duration = now - heard_at_[rank];
    if (duration >= least && (!longest || duration > longest->duration))
      longest = Silence{static_cast<int>(rank), duration};
  }
  return longest;
}

bool SilenceWatch::wants_probe(base::TimeNs now) {
  const base::TimeNs after = std::min(silence_max_ / 8, kProbesApart);
  if (work_ == Work::kNone || now - heard_at_[0] < after || now - probed_at_ < after) return false;
  probed_at_ = now;
  return true;
}

}  // namespace cli
