// Logits against the golden references: `reference` within the strict row for every tensor type,
// the fast path within the case's tolerance; expert sets, best ids and greedy continuations as far
// as the margins allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

struct Tolerance {
  double mean = 0, max = 0;
};
constexpr Tolerance kStrict{1e-4, 1e-3};
constexpr Tolerance kF16Kv{0.006, 0.13};  // on top, for half-precision keys and values

struct Difference {
  double sum = 0, max = 0;
  size_t count = 0;
  void add(float a, float b) {
    const double d = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    // A NaN must not pass as small.
    max = std::isfinite(d) ? std::max(max, d) : INFINITY;
    sum += d;
    count++;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

int32_t best_of(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Difference compare(const Logits& got, const GoldenSequence& want) {
  Difference difference;
  for (size_t i = 0; i < want.last_logits.size(); i++) {
    difference.add(got.last()[i], want.last_logits[i]);
  }
  for (size_t p = 0; p < want.top8.size(); p++) {
    for (const auto& [id, logit] : want.top8[p]) {
      difference.add(got.positions[p][static_cast<size_t>(id)], logit);
    }
  }
  return difference;
}

// Positions, over all layers, where another set of experts was chosen.
int different_expert_sets(const Logits& got, const GoldenSequence& want) {
  int different = 0;
  for (size_t layer = 0; layer < want.experts.size(); layer++) {
    for (size_t p = 0; p < want.experts[layer].size(); p++) {
      auto a = got.experts[layer][p], b = want.experts[layer][p];
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      different += a != b;
    }
  }
  return different;
}

// Best ids where the lead exceeds twice the tolerance; greedy until a lead is smaller.
void expect_same_choices(LocalRanks& ranks, const Logits& got, const GoldenSequence& want,
                         double tolerance) {
  for (size_t p = 0; p < want.top8.size(); p++) {
    const double lead = static_cast<double>(want.top8[p][0].second - want.top8[p][1].second);
    if (lead > 2 * tolerance) {
      EXPECT_EQ(best_of(got.positions[p]), want.top8[p][0].first) << "position " << p;
    }
  }
  std::vector<float> logits = got.last();
  auto position = static_cast<int64_t>(want.tokens.size());
  for (size_t i = 0; i < want.greedy.size(); i++, position++) {
    if (static_cast<double>(want.greedy[i].second) <= 2 * tolerance) return;
    const int32_t id = best_of(logits);
    ASSERT_EQ(id, want.greedy[i].first) << "greedy step " << i;
    auto next = ranks.forward({id}, 0, 0, position);
    ASSERT_TRUE(next.ok()) << next.error().message;
    logits = next->last();
  }
}

// One case under one ISA; returns the worst difference seen.
void check_case(const GoldenCase& one, const LocalRanksOptions& options, Tolerance tolerance,
                bool experts) {
  SCOPED_TRACE(one.name + " " + options.isa);
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto ranks = LocalRanks::start(*model, options);
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  for (const GoldenSequence& want : one.reference) {
    auto got = (*ranks)->forward(want.tokens);
    ASSERT_TRUE(got.ok()) << got.error().message;
    const Difference difference = compare(*got, want);
    EXPECT_LE(difference.mean(), tolerance.mean) << want.tokens.size() << " tokens";
    EXPECT_LE(difference.max, tolerance.max) << want.tokens.size() << " tokens";
    if (experts) {
      EXPECT_EQ(different_expert_sets(*got, want), 0);
    }
    expect_same_choices(**ranks, *got, want, tolerance.max);
  }
}

const std::vector<std::string> kArchitectures = {"qwen3moe", "olmoe", "llama", "qwen3"};

TEST(Parity, ReferenceMeetsTheStrictRow) {
  bool complete = false;
  const auto cases = golden_cases(kArchitectures, &complete);
  ASSERT_GE(cases.size(), 10u);
  for (const GoldenCase& one : cases) {
    check_case(one, {.isa = "reference", .kv_type = kernels::KvType::kF32}, kStrict, true);
  }
  std::cout << cases.size() << " cases" << (complete ? "" : " (the small set: ../shared is absent)")
            << "\n";
}

// The small set lacks most tensor types; whoever runs it alone shall see that.
TEST(Parity, AllGoldenCasesArePresent) {
  bool complete = false;
  golden_cases({}, &complete);
  if (!complete) GTEST_SKIP() << "../shared/golden is absent: only the small set was compared";
}

TEST(Parity, FastPathMeetsTheCasesTolerance) {
  for (const GoldenCase& one : golden_cases(kArchitectures)) {
    const Tolerance tolerance{std::max(one.mean_max, kStrict.mean),
                              std::max(one.difference_max, kStrict.max)};
    check_case(one, {.isa = "auto", .kv_type = kernels::KvType::kF32}, tolerance, false);
  }
}

// Where activations stay float32 (F32, F16, BF16 and the types without a fast path), half-precision
// keys and values are the only rounding left, and small.
TEST(Parity, HalfPrecisionKvAddsLittle) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  int compared = 0;
  for (const GoldenCase& one : golden_cases(kArchitectures)) {
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto& tensors = model->directory->tensors;
    const bool exact = std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return kernels::activation_format(kernels::layout_for(tensor.type, **ops)) ==
             kernels::ActivationFormat::kF32;
    });
    if (!exact) continue;
    const Tolerance tolerance{kStrict.mean + kF16Kv.mean, kStrict.max + kF16Kv.max};
    check_case(one, {.isa = "auto", .kv_type = kernels::KvType::kF16}, tolerance, true);
    compared++;
  }
  EXPECT_GE(compared, 5);
}

// The comparator itself: a wrong answer must not pass.
TEST(Parity, ComparatorSeesAWrongLogit) {
  const GoldenCase one = golden_case("olmoe-f32");
  ASSERT_FALSE(one.reference.empty());
  const GoldenSequence& want = one.reference.back();
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto ranks = LocalRanks::start(*model, {.isa = "reference", .kv_type = kernels::KvType::kF32});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  auto got = (*ranks)->forward(want.tokens);
  ASSERT_TRUE(got.ok());
  EXPECT_LE(compare(*got, want).max, kStrict.max);
  Logits wrong = *got;
  wrong.positions.back()[3] += 0.01f;
  EXPECT_GT(compare(wrong, want).max, kStrict.max);
  wrong = *got;
  wrong.positions.back()[3] = NAN;
  EXPECT_GT(compare(wrong, want).max, kStrict.max);
  auto other = want.tokens;
  other[other.size() / 2] ^= 1;
  auto elsewhere = (*ranks)->forward(other);
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_GT(compare(*elsewhere, want).mean(), kStrict.mean);
}

}  // namespace
}  // namespace engine
