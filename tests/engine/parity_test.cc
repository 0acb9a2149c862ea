// Logits against the golden references: `reference` within the strict row for every tensor type,
// the fast path within the case's tolerance; expert sets, best ids and greedy continuations as far
// as the margins allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

struct Tolerance {
  double mean = 0, max = 0;
};
constexpr Tolerance kStrict{1e-4, 1e-3};
constexpr Tolerance kF16Kv{0.006, 0.13};    // on top, for half-precision keys and values
constexpr Tolerance kF16KvDeep{0.03, 0.9};  // the same over 27 layers

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
  void add(const Difference& other) {
    sum += other.sum;
    max = std::max(max, other.max);
    count += other.count;
  }
  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
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

// What another choice of experts than the reference's means. Where rounding decides a near tie, the
// logits go elsewhere and say nothing about the arithmetic.
enum class OtherExperts { kCompareAll, kFail, kSkipSequence };

struct Comparison {
  Tolerance worst;
  int sequences = 0;
  int skipped = 0;
};

// One case under one ISA.
Comparison check_case(const GoldenCase& one, const LocalRanksOptions& options, Tolerance tolerance,
                      OtherExperts other) {
  SCOPED_TRACE(one.name + " " + options.isa);
  Comparison result;
  auto model = model::load_model(one.path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return result;
  auto ranks = LocalRanks::start(*model, options);
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  if (!ranks.ok()) return result;
  Difference all;  // tolerances are of a case: its sequences differ in how much rounding moves them
  for (const GoldenSequence& want : one.reference) {
    auto got = (*ranks)->forward(want.tokens);
    EXPECT_TRUE(got.ok()) << got.error().message;
    if (!got.ok()) return result;
    result.sequences++;
    const int different = different_expert_sets(*got, want);
    if (other == OtherExperts::kFail) {
      EXPECT_EQ(different, 0);
    }
    if (other == OtherExperts::kSkipSequence && different > 0) {
      result.skipped++;
      continue;
    }
    const Difference difference = compare(*got, want);
    EXPECT_LE(difference.max, tolerance.max) << want.tokens.size() << " tokens";
    all.add(difference);
    expect_same_choices(**ranks, *got, want, tolerance.max);
  }
  EXPECT_LE(all.mean(), tolerance.mean);
  result.worst = {all.mean(), all.max};
  return result;
}

// The largest differences seen per architecture: the figures of docs/models.md.
class Figures {
 public:
  void add(const std::string& architecture, const Comparison& one) {
    Tolerance& worst = worst_[architecture];
    worst.mean = std::max(worst.mean, one.worst.mean);
    worst.max = std::max(worst.max, one.worst.max);
    cases_[architecture]++;
  }
  void print() const {
    for (const auto& [name, worst] : worst_) {
      std::cout << name << ": " << cases_.at(name) << " cases, mean " << worst.mean << ", max "
                << worst.max << "\n";
    }
  }

 private:
  std::map<std::string, Tolerance> worst_;
  std::map<std::string, int> cases_;
};

const std::vector<std::string> kArchitectures = {
    "deepseek2", "dots1",      "ernie4_5-moe", "glm4moe", "gpt-oss",  "granitemoe", "llama",
    "llama4",    "minimax-m2", "olmoe",        "qwen2",   "qwen2moe", "qwen3",      "qwen3moe"};

Tolerance strict_of(const GoldenCase& one) {
  return {std::max(one.mean_max, kStrict.mean), std::max(one.difference_max, kStrict.max)};
}

TEST(Parity, ReferenceMeetsTheStrictRow) {
  bool complete = false;
  const auto cases = golden_cases(kArchitectures, &complete);
  ASSERT_GE(cases.size(), 10u);
  Figures figures;
  for (const GoldenCase& one : cases) {
    // The deepest model has a row of its own.
    const Tolerance tolerance = one.name == "deepseek2-lite-27l-f32" ? strict_of(one) : kStrict;
    figures.add(one.architecture,
                check_case(one, {.isa = "reference", .kv_type = kernels::KvType::kF32}, tolerance,
                           OtherExperts::kFail));
  }
  figures.print();
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
  Figures figures;
  for (const GoldenCase& one : golden_cases(kArchitectures)) {
    figures.add(one.architecture, check_case(one, {.isa = "auto", .kv_type = kernels::KvType::kF32},
                                             strict_of(one), OtherExperts::kCompareAll));
  }
  figures.print();
}

// Where activations stay float32 (F32, F16, BF16 and the types without a fast path), half-precision
// keys and values are the only rounding left, and small.
TEST(Parity, HalfPrecisionKvAddsLittle) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  int compared = 0, skipped = 0;
  for (const GoldenCase& one : golden_cases(kArchitectures)) {
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto& tensors = model->directory->tensors;
    const bool exact = std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return kernels::activation_format(kernels::layout_for(tensor.type, **ops)) ==
             kernels::ActivationFormat::kF32;
    });
    if (!exact) continue;
    const Tolerance extra = model->spec.blocks.size() > 20 ? kF16KvDeep : kF16Kv;
    const Tolerance tolerance{kStrict.mean + extra.mean, kStrict.max + extra.max};
    const Comparison result = check_case(one, {.isa = "auto", .kv_type = kernels::KvType::kF16},
                                         tolerance, OtherExperts::kSkipSequence);
    compared += result.sequences - result.skipped;
    skipped += result.skipped;
  }
  std::cout << compared << " sequences compared, " << skipped << " chose other experts\n";
  EXPECT_GE(compared, 15);
  EXPECT_LE(skipped * 30, compared);
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
