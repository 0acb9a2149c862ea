#include "worker/scoring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace worker {
namespace {

TEST(Scoring, LogProbabilitiesAreThoseOfTheSoftmax) {
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  EXPECT_NEAR(log_probability(logits, 0), std::log(1.0 / 8), 1e-6);
  EXPECT_NEAR(log_probability(logits, 1), std::log(2.0 / 8), 1e-6);
  EXPECT_NEAR(log_probability(logits, 2), std::log(5.0 / 8), 1e-6);
}

TEST(Scoring, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {10000, 9999, -10000};
  EXPECT_NEAR(log_probability(logits, 0), -std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_FLOAT_EQ(log_probability(logits, 2), -20000.3133f);
}

TEST(Scoring, LogitsThatAreNoNumbersCountAsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {nan, 1, 1, -infinity, nan};
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.5), 1e-6);
  EXPECT_EQ(log_probability(logits, 3), -infinity);
}

TEST(Scoring, BestComeFirstAndLowerIdsFirstAmongEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {nan, 3, 7, 7, -1, 7, nan};
  std::vector<int32_t> ids = {99};
  std::vector<float> values = {99};
  append_best(logits, 5, ids, values);
  EXPECT_EQ(ids, (std::vector<int32_t>{99, 2, 3, 5, 1, 4}));
  EXPECT_EQ(values, (std::vector<float>{99, 7, 7, 7, 3, -1}));
  append_best(logits, 0, ids, values);
  EXPECT_EQ(ids.size(), 6u);
  ids.clear();
  append_best(logits, 7, ids, values);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3, 5, 1, 4, 0, 6}));
}

}  // namespace
}  // namespace worker
