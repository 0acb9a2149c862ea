#include "base/check.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(CheckDeathTest, AFalseConditionEndsTheProcessWithPlaceAndSentence) {
  const int rows = 7;
  EXPECT_DEATH(CHECK(rows % 2 == 0, "rows is ", rows),
               "check_test.cc:[0-9]+: CHECK failed: rows % 2 == 0: rows is 7");
}

TEST(Check, ATrueConditionBuildsNoMessage) {
  int built = 0;
  const auto message = [&] { return ++built; };
  CHECK(true, "message ", message());
  EXPECT_EQ(built, 0);
}

TEST(Check, IsOneStatement) {
  bool other = false;
  if (false)
    CHECK(true, "not reached");
  else
    other = true;
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace base
