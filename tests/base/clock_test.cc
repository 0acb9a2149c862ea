#include "base/clock.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(Clock, TheSteadyClockNeverGoesBack) {
  const SteadyClock clock;
  TimeNs last = clock.now();
  for (int i = 0; i < 10000; i++) {
    const TimeNs now = clock.now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, TheManualClockMovesByHandOnly) {
  ManualClock clock;
  const TimeNs start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(5'000'000'000);
  EXPECT_EQ(clock.now() - start, 5'000'000'000);
}

}  // namespace
}  // namespace base
