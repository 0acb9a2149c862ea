// Who of a rank's threads takes part in the next step.
//
// A thread whose CPU is busy with others' work keeps all the rest waiting at every wait of a layer:
// with half of a CPU it halves the rank, while the rest without it may read memory nearly as fast.
// So it stays out, and is tried again after a while. Threads beyond the CPUs there are stay out for
// good. Who computes never changes a bit. A state machine over numbers that others measure: pure.
// Thread rule: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace engine {

struct RosterOptions {
  /// Steps that a judgement rests on: several turns of a scheduler (1 to 4 ms each).
  uint64_t window_ns = 25'000'000;
  /// Steps without the crowded threads before they are tried again; doubled after each try in vain.
  uint64_t retry_min_ns = 250'000'000, retry_max_ns = 4'000'000'000;
};

class Roster {
 public:
  /// `cpus[t]` of thread t, -1: pinned nowhere; `cpu_count`: how many there are for those.
  Roster(std::span<const int> cpus, int cpu_count, const RosterOptions& options = {});

  /// Ascending, never empty.
  std::span<const int> members() const { return members_; }

  /// A step took `step_ns` of the first `count` members; the others slept, and waited for no CPU.
  /// True if the roster wants to see how long the threads have waited.
  bool on_step(uint64_t step_ns, size_t count);
  /// `delay_ns[t]`: how long thread t has ever been ready to run without a CPU. True if that
  /// changed the members.
  bool judge(std::span<const uint64_t> delay_ns);

 private:
  void begin_window(std::span<const uint64_t> delay_ns);
  void leave_out(std::span<const int> crowded);

  const int threads_;
  const RosterOptions options_;
  std::vector<int> able_;                 // all but those that share a CPU with an earlier one
  std::vector<int> members_;              // of able_
  std::vector<int> crowded_;              // reused
  std::vector<uint64_t> delay_at_begin_;  // [threads] of the window; empty before the first
  std::vector<uint64_t> busy_ns_;         // [threads] steps of the window that it took part in
  uint64_t window_ns_ = 0;                // all steps of the window
  uint64_t out_ns_ = 0;                   // steps since threads were left out
  uint64_t retry_ns_;                     // after so much of that they are tried again
};

}  // namespace engine
