// Where the time of a rank's steps went, and what it read.
//
// Measured by the first thread of a step: one clock read where a phase ends. Of the products of
// that thread only its own share is seen; what it waits for the others is waiting. Plain values;
// PhaseClock by one thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace engine {

enum class Phase {
  kOther,      // norms, quantising, choosing experts, joining slices
  kMatmul,     // products with weights, and what is applied to their results at once
  kAttention,  // heads against the cache
  kExchange,   // gathers with other ranks, with the waiting for them
  kBarrier,    // waiting for the other threads of the rank
};
inline constexpr size_t kPhaseCount = 5;

/// Counted since the start; of one rank.
struct StepStats {
  uint64_t steps = 0;
  uint64_t columns = 0;                          // positions computed
  uint64_t step_ns = 0;                          // all steps
  std::array<uint64_t, kPhaseCount> phase_ns{};  // of step_ns, by Phase
  uint64_t weight_bytes = 0;                     // packed weights read by products, all threads
  uint64_t layer_waits = 0;                      // waits inside the layers of the last decode step
  uint64_t layers = 0;                           // of the model
  int threads = 0;                               // that took part in the last step

  uint64_t ns(Phase phase) const { return phase_ns[static_cast<size_t>(phase)]; }
  uint64_t wait_ns() const { return ns(Phase::kExchange) + ns(Phase::kBarrier); }
};

/// Adds the time from lap to lap to phases, of one thread.
class PhaseClock {
 public:
  /// From now on; without `runs` laps cost nothing and count nothing.
  void begin(bool runs) {
    runs_ = runs;
    ns_ = {};
    if (runs_) last_ = Clock::now();
  }
  /// What went by since the last lap was `phase`.
  void lap(Phase phase) {
    if (!runs_) return;
    const Clock::time_point now = Clock::now();
    ns_[static_cast<size_t>(phase)] += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count());
    last_ = now;
  }
  const std::array<uint64_t, kPhaseCount>& ns() const { return ns_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool runs_ = false;
  Clock::time_point last_;
  std::array<uint64_t, kPhaseCount> ns_{};
};

}  // namespace engine
