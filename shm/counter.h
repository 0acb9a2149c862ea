// A number in shared memory that one thread raises and threads of any process await.
//
//   raise:  value = n (seq_cst)         await:  spin on value (acquire), then
//           sleepers != 0 ? wake                sleepers + 1 (seq_cst); value (seq_cst) still old?
//                                               sleep while value is old; sleepers - 1
//
// Of the two seq_cst pairs one side sees the other: either the sleeper sees the new value, or the
// raiser sees the sleeper. Should that ever fail, the sleep is bounded by `slice_ns`.
// Numbers are the low 32 bits of a 64-bit sequence and compared by difference, so they may wrap.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/exchange.h"
#include "shm/signals.h"

namespace shm {

/// Lies in shared memory. 128 bytes, since cores fetch pairs of lines.
struct alignas(128) Counter {
  std::atomic<uint32_t> value;     // written by the owner; seq_cst store, acquire/seq_cst loads
  std::atomic<uint32_t> sleepers;  // waiters in or near the futex; seq_cst
};
static_assert(sizeof(Counter) == 128);

/// Whether `value` has come to `target`, for numbers less than 2^31 apart.
inline bool reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

/// Raises the counter and wakes whoever sleeps on it. The owner's thread; releases what it wrote.
void raise(Counter& counter, uint32_t value);

/// Wakes sleepers without a new value, so that they look at their group's signals.
void nudge(const Counter& counter);

struct WaitOptions {
  int spin_pauses = 4000;                     // before the first sleep; some 100 µs
  base::TimeNs spin_ns = 0;                   // and then for so long, with a look at the clock
  base::TimeNs slice_ns = 100'000'000;        // longest single sleep: how late a loss is seen
  base::TimeNs timeout_ns = 120'000'000'000;  // backstop of one wait
};

/// A spin of two turns of a scheduler, for waits inside a step. Whoever is awaited may have lost
/// its CPU for one turn. If this thread slept meanwhile, the other would be through with its next
/// part before this one is awake and at work, would sleep in its turn, and so lose another turn to
/// its neighbour at every single wait.
inline constexpr base::TimeNs kSpinInStep = 5'000'000;

/// Spins for threads that share their core with others: sleeping soon lets the awaited one run.
inline constexpr int kSpinPausesOversubscribed = 200;

/// What one wait may still spend, and what it has spent; made anew for every wait.
struct WaitBudget {
  explicit WaitBudget(const WaitOptions& wait_options)
      : options(&wait_options), pauses_left(wait_options.spin_pauses) {}

  const WaitOptions* options;
  int pauses_left;
  base::TimeNs spin_until = 0;  // set after the pauses
  base::TimeNs deadline = 0;    // set after the pauses too: the fast path reads no clock
  uint32_t sleeps = 0;
};

/// Returns when the counter has reached `target` (acquire), the group ended, or the budget is
/// spent.
base::Wait await(Counter& counter, uint32_t target, const GroupSignals& signals,
                 WaitBudget& budget);

}  // namespace shm
