// Who is suspected of ending workers, in all orders of crashes and progress.
#include "broker/blame.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/cat.h"

namespace broker {
namespace {

TEST(Blame, TwoCrashesInARowIsolateAndThreeEndIt) {
  Blame blame;
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(5);
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(7);
  EXPECT_TRUE(blame.must_run_alone());
  EXPECT_FALSE(blame.given_up());
  blame.on_crash(7);
  ASSERT_TRUE(blame.given_up());
  EXPECT_EQ(*blame.given_up(), "it was under way in 3 crashes in a row");
}

TEST(Blame, SixteenTokensClear) {
  Blame blame;
  blame.on_crash(100);
  blame.on_crash(101);
  blame.on_progress(101 + kClearedAfter - 1);
  EXPECT_TRUE(blame.must_run_alone());
  blame.on_progress(101 + kClearedAfter);
  EXPECT_FALSE(blame.must_run_alone());
  blame.on_crash(101 + kClearedAfter);
  EXPECT_EQ(blame.in_row(), 1);
}

TEST(Blame, TenCrashesEndItHoweverFarItGotBetween) {
  Blame blame;
  for (uint64_t crash = 1; crash < kCrashesMax; crash++) {
    blame.on_progress(crash * kClearedAfter);
    blame.on_crash(crash * kClearedAfter);
    EXPECT_FALSE(blame.must_run_alone());
    EXPECT_FALSE(blame.given_up()) << crash;
  }
  blame.on_progress(kCrashesMax * kClearedAfter);
  blame.on_crash(kCrashesMax * kClearedAfter);
  EXPECT_EQ(blame.given_up(), "it was under way in 10 crashes");
}

// The rule once more in plain words, over all sequences of nine crashes with and without progress.
TEST(Blame, EveryOrderEqualsThePlainRule) {
  constexpr int kCrashes = 9;
  int given_up = 0, alone = 0;
  for (int order = 0; order < 1 << kCrashes; order++) {
    Blame blame;
    std::vector<uint64_t> tokens = {0};  // at each crash; none has been yet
    for (int crash = 0; crash < kCrashes; crash++) {
      const bool much = (order >> crash & 1) != 0;
      tokens.push_back(tokens.back() + (much ? kClearedAfter : kClearedAfter - 9));
      blame.on_progress(tokens.back());
      blame.on_crash(tokens.back());
      int in_row = 1;
      for (size_t i = tokens.size() - 1; i > 1 && tokens[i] - tokens[i - 1] < 16; i--) in_row++;
      ASSERT_EQ(blame.must_run_alone(), in_row >= 2) << order << " crash " << crash;
      ASSERT_EQ(blame.given_up().has_value(), in_row >= 3) << order << " crash " << crash;
      alone += blame.must_run_alone() ? 1 : 0;
      if (!blame.given_up()) continue;
      given_up++;
      break;
    }
  }
  EXPECT_GT(given_up, 300);
  EXPECT_GT(alone, given_up);
}

}  // namespace
}  // namespace broker
