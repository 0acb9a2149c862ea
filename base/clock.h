// Monotonic time as a seam, so that state machines and tests decide what time it is.
#pragma once

#include <chrono>
#include <cstdint>

namespace base {

/// Nanoseconds of a monotonic clock; only differences mean something.
using TimeNs = int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now() const = 0;
};

/// The machine's monotonic clock. Any thread.
class SteadyClock final : public Clock {
 public:
  TimeNs now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// A clock that tests move by hand.
class ManualClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  void advance(TimeNs ns) { now_ += ns; }

 private:
  TimeNs now_ = 0;
};

}  // namespace base
