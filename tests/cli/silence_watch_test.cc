#include "cli/silence_watch.h"

#include <gtest/gtest.h>

namespace cli {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;

TEST(SilenceWatch, WithWorkOnlyTheLeaderIsJudged) {
  SilenceWatch watch(10 * kSecond);
  watch.begin(3, 0);
  EXPECT_FALSE(watch.check(Work::kSome, kSecond));  // begins there, since nobody had work before
  EXPECT_FALSE(watch.check(Work::kSome, 10 * kSecond));
  const auto silence = watch.check(Work::kSome, 11 * kSecond);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 0);
  EXPECT_EQ(silence->duration, 10 * kSecond);
  watch.on_heard(0, 11 * kSecond);
  EXPECT_FALSE(watch.check(Work::kSome, 20 * kSecond)) << "followers say nothing during steps";
}

TEST(SilenceWatch, WithoutWorkEveryRankIsAndHasMoreTime) {
  SilenceWatch watch(kSecond);
  watch.begin(2, 0);
  EXPECT_FALSE(watch.check(Work::kNone, 15 * kSecond));
  watch.on_heard(0, 15 * kSecond);
  const auto silence = watch.check(Work::kNone, 20 * kSecond);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 1);
}

TEST(SilenceWatch, WorkThatBeginsOrEndsBeginsAnew) {
  SilenceWatch watch(10 * kSecond);
  watch.begin(2, 0);
  EXPECT_FALSE(watch.check(Work::kSome, 15 * kSecond)) << "it had nothing to say before";
  EXPECT_FALSE(watch.check(Work::kNone, 24 * kSecond)) << "a follower was quiet during steps";
  EXPECT_FALSE(watch.check(Work::kNone, 43 * kSecond));
  EXPECT_TRUE(watch.check(Work::kNone, 44 * kSecond));
}

TEST(SilenceWatch, ASilentLeaderIsAskedNowAndThen) {
  SilenceWatch watch(80 * kSecond);
  watch.begin(1, 0);
  EXPECT_FALSE(watch.check(Work::kSome, 0));
  EXPECT_FALSE(watch.wants_probe(9 * kSecond));
  EXPECT_TRUE(watch.wants_probe(10 * kSecond));
  EXPECT_FALSE(watch.wants_probe(19 * kSecond));
  EXPECT_TRUE(watch.wants_probe(20 * kSecond));
  watch.on_heard(0, 25 * kSecond);
  EXPECT_FALSE(watch.wants_probe(34 * kSecond));
  EXPECT_FALSE(watch.check(Work::kNone, 34 * kSecond));
  EXPECT_FALSE(watch.wants_probe(50 * kSecond)) << "it may be silent";
}

TEST(SilenceWatch, TimeInWhichNobodyListenedDoesNotCount) {
  SilenceWatch watch(10 * kSecond);
  watch.begin(1, 0);
  watch.on_turn(0, kSecond);
  EXPECT_FALSE(watch.check(Work::kSome, 0));
  watch.on_turn(kSecond, kSecond);
  watch.on_turn(1000 * kSecond, kSecond);  // stopped by a terminal for a while
  EXPECT_FALSE(watch.check(Work::kSome, 1000 * kSecond));
  EXPECT_TRUE(watch.check(Work::kSome, 1010 * kSecond));
}

}  // namespace
}  // namespace cli
