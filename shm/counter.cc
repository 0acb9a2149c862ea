#include "shm/counter.h"

#include <algorithm>

#include "shm/futex.h"

namespace shm {

namespace {

// A few microseconds: signals and the clock are looked at so often in a long spin.
constexpr int kPausesBetweenLooks = 64;

/// One sleep of at most a slice. The seq_cst order of the three steps is the header's picture.
void sleep_once(Counter& counter, uint32_t target, base::TimeNs until) {
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t value = counter.value.load(std::memory_order_seq_cst);
  if (!reached(value, target)) futex_wait_until(counter.value, value, until);
  counter.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace

void raise(Counter& counter, uint32_t value) {
  counter.value.store(value, std::memory_order_seq_cst);
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(counter.value);
}

void nudge(const Counter& counter) {
  futex_wake_all(counter.value);
}

base::Wait await(Counter& counter, uint32_t target, const GroupSignals& signals,
                 WaitBudget& budget) {
  while (!reached(counter.value.load(std::memory_order_acquire), target)) {
    if (budget.pauses_left > 0) {
      --budget.pauses_left;
      pause();
      continue;
    }
    const base::TimeNs now = base::SteadyClock().now();
    if (budget.deadline == 0) {
      budget.deadline = now + budget.options->timeout_ns;
      budget.spin_until = now + budget.options->spin_ns;
    }
    // The first look at the signals comes before the first sleep, so that a wait on a group that
    // has ended does not cost a slice.
    base::Wait state = signals.state();
    if (state == base::Wait::kOk && budget.sleeps > 0) state = signals.examine();
    if (state != base::Wait::kOk) return state;
    if (now >= budget.deadline) return base::Wait::kTimeout;
    if (now < budget.spin_until) {
      budget.pauses_left = kPausesBetweenLooks;
      continue;
    }
    sleep_once(counter, target, std::min(now + budget.options->slice_ns, budget.deadline));
    ++budget.sleeps;
  }
  return base::Wait::kOk;
}

}  // namespace shm
