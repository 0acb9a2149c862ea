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
  SilenceWatch watch(32 * kSecond);
  watch.begin(1, 0);
  EXPECT_FALSE(watch.check(Work::kSome, 0));
  EXPECT_FALSE(watch.wants_probe(3 * kSecond));
  EXPECT_TRUE(watch.wants_probe(4 * kSecond));
  EXPECT_FALSE(watch.wants_probe(7 * kSecond));
  EXPECT_TRUE(watch.wants_probe(8 * kSecond));
  watch.on_heard(0, 10 * kSecond);
  EXPECT_FALSE(watch.wants_probe(13 * kSecond));
  EXPECT_FALSE(watch.check(Work::kNone, 13 * kSecond));
  EXPECT_FALSE(watch.wants_probe(20 * kSecond)) << "it may be silent";
}

TEST(SilenceWatch, AShortSilenceIsNotable) {
  SilenceWatch watch(300 * kSecond);
  watch.begin(2, 0);
  EXPECT_FALSE(watch.check(Work::kSome, 0));
  EXPECT_FALSE(watch.notable(29 * kSecond)) << "a step may take so long";
  const auto silence = watch.notable(31 * kSecond);
  ASSERT_TRUE(silence);
  EXPECT_EQ(silence->rank, 0);
  EXPECT_EQ(silence->duration, 31 * kSecond);
  EXPECT_FALSE(watch.check(Work::kSome, 31 * kSecond));
  EXPECT_TRUE(watch.wants_probe(31 * kSecond)) << "it was asked before that";
  watch.on_heard(0, 32 * kSecond);
  EXPECT_FALSE(watch.notable(32 * kSecond));
  EXPECT_FALSE(watch.check(Work::kNone, 40 * kSecond));
  watch.on_heard(0, 49 * kSecond);
  const auto idle = watch.notable(50 * kSecond);
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->rank, 1) << "without work every rank says that it is there";
  SilenceWatch strict(8 * kSecond);
  strict.begin(1, 0);
  EXPECT_FALSE(strict.check(Work::kSome, 0));
  EXPECT_TRUE(strict.notable(4 * kSecond)) << "before it is too long";
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
