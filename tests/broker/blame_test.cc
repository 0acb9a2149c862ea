// Who is suspected of ending workers, in all orders of crashes and progress.
#include "broker/blame.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cat.h"

namespace broker {
namespace {

using Was = Blame::Was;

TEST(Blame, TwoCrashesInARowIsolateAndThreeEndIt) {
  Blame blame;
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(Was::kRunning, 5);
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(Was::kRunning, 7);
  EXPECT_TRUE(blame.must_run_alone());
  EXPECT_FALSE(blame.given_up());
  blame.on_crash(Was::kRunning, 7);
  ASSERT_TRUE(blame.given_up());
  EXPECT_EQ(*blame.given_up(), "it was running in 3 crashes in a row");
}

TEST(Blame, SixteenTokensClear) {
  Blame blame;
  blame.on_crash(Was::kRunning, 100);
  blame.on_crash(Was::kRunning, 101);
  blame.on_progress(101 + kClearedAfter - 1);
  EXPECT_TRUE(blame.must_run_alone());
  blame.on_progress(101 + kClearedAfter);
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(Was::kRunning, 101 + kClearedAfter);
  EXPECT_EQ(blame.in_row(), 1);
}

TEST(Blame, ARequestThatWasOnlySentIsNotBlamedButNotTriedForEver) {
  Blame blame;
  for (int crash = 1; crash < kCrashesMax; crash++) {
    blame.on_crash(Was::kSent, 0);
    EXPECT_FALSE(blame.must_run_alone());
    EXPECT_FALSE(blame.given_up()) << crash;
  }
  blame.on_crash(Was::kSent, 0);
  EXPECT_EQ(blame.given_up(), "it was under way in 10 crashes");
}

// The rule once more in plain words, over all sequences of seven crashes with and without progress.
TEST(Blame, EveryOrderEqualsThePlainRule) {
  constexpr int kCrashes = 7, kKinds = 4;  // little or much progress before; running or only sent
  int given_up = 0, alone = 0;
  for (int order = 0; order < 1 << (2 * kCrashes); order++) {
    Blame blame;
    uint64_t tokens = 0;
    std::vector<uint64_t> running_at;
    for (int crash = 0; crash < kCrashes; crash++) {
      const int kind = order >> (2 * crash) & (kKinds - 1);
      tokens += (kind & 1) != 0 ? kClearedAfter : kClearedAfter - 9;
      blame.on_progress(tokens);
      const bool was_running = (kind & 2) != 0;
      blame.on_crash(was_running ? Was::kRunning : Was::kSent, tokens);
      if (was_running) running_at.push_back(tokens);
      int in_row = running_at.empty() ? 0 : 1;
      for (size_t i = running_at.size(); i > 1 && running_at[i - 1] - running_at[i - 2] < 16; i--)
        in_row++;
      // Crashes that it was not running in clear as well as any: what counts is how far it came.
      if (!was_running && !running_at.empty() && tokens - running_at.back() >= 16) in_row = 0;
      ASSERT_EQ(blame.must_run_alone(), in_row >= 2) << order << " crash " << crash;
      ASSERT_EQ(blame.given_up().has_value(), in_row >= 3) << order << " crash " << crash;
      alone += blame.must_run_alone() ? 1 : 0;
      if (!blame.given_up()) continue;
      given_up++;
      break;
    }
  }
  EXPECT_GT(given_up, 1000);
  EXPECT_GT(alone, given_up);
}

}  // namespace
}  // namespace broker
