// The fast path against plain double arithmetic far from the start of a sequence: the demo model,
// its context stretched by YaRN to 4096 and 8192 positions.
//
// The reference takes most of a minute for 4096 positions. By default it computes the last ones
// only, on keys and values that the fast path has left in a cache of float32; in full it computes
// all of them itself.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

#include "base/rng.h"
#include "model/architectures.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

// Between rounded activations and exact ones with weights in Q4_K: that row of the golden cases.
constexpr double kMeanMax = 0.091, kDifferenceMax = 0.91;

// Positions at the end of a sequence whose logits are compared.
constexpr size_t kCompared = 32;

model::Model demo_model(int64_t context, bool yarn) {
  auto model = model::load_model(demo_model_path());
  EXPECT_TRUE(model.ok()) << model.error().message;
  for (model::Block& block : model->spec.blocks) {
    model::Rope& rope = block.attention.rope;
    EXPECT_EQ(rope.scaling, model::RopeScaling::kNone);
    if (!yarn) continue;
    rope.scaling = model::RopeScaling::kYarn;
    rope.original_context = model->spec.context;
    rope.factor = static_cast<float>(context) / static_cast<float>(model->spec.context);
  }
  model->spec.context = context;
  return std::move(*model);
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocabulary) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; i++) {
    const double u = base::draw_uniform({.seed = 17, .position = static_cast<uint64_t>(i)});
    tokens.push_back(static_cast<int32_t>(u * static_cast<double>(vocabulary)));
  }
  return tokens;
}

struct Difference {
  double mean = 0, max = 0;
};

/// Over all logits of the last kCompared positions of both.
Difference compare(const Logits& a, const Logits& b) {
  Difference difference;
  size_t count = 0;
  for (size_t back = 1; back <= kCompared; back++) {
    const auto& left = a.positions.at(a.positions.size() - back);
    const auto& right = b.positions.at(b.positions.size() - back);
    for (size_t i = 0; i < left.size(); i++, count++) {
      const double d = std::fabs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
      difference.max = std::isfinite(d) ? std::max(difference.max, d) : INFINITY;
      difference.mean += d;
    }
  }
  difference.mean /= static_cast<double>(count);
  return difference;
}

void expect_close(const Difference& difference, int64_t positions) {
  std::cout << positions << " positions: mean " << difference.mean << ", max " << difference.max
            << "\n";
  EXPECT_LE(difference.mean, kMeanMax);
  EXPECT_LE(difference.max, kDifferenceMax);
  EXPECT_GT(difference.mean, 0) << "the same arithmetic twice";
}

LocalRanksOptions options_for(const char* isa, int64_t context) {
  return {.isa = isa,
          .kv_type = kernels::KvType::kF32,
          .context = context,
          .kv_blocks = static_cast<int32_t>(context / base::kKvBlockPositions)};
}

/// Logits of the last kCompared positions of `context`, all before it computed by the fast path;
/// these ones by `last`.
Logits last_logits(const model::Model& model, const LocalRanksOptions& last) {
  const auto tokens = random_tokens(last.context, model.spec.vocabulary);
  const auto first = tokens.size() - kCompared;
  auto plan = plan::split(model.spec, {.strategy = plan::Strategy::kRows, .rank_count = 1});
  EXPECT_TRUE(plan.ok());
  Buffer<std::byte> kv(
      kv_pool_bytes(model.spec, plan->ranks[0], last.kv_type, {last.kv_blocks, last.near_blocks}));
  LocalRanksOptions before = options_for("auto", last.context);
  before.kv_memory = {kv.data()};
  LocalRanksOptions behind = last;
  behind.kv_memory = before.kv_memory;
  {
    auto ranks = LocalRanks::start(model, before);
    EXPECT_TRUE(ranks.ok()) << ranks.error().message;
    const auto filled =
        (*ranks)->forward({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(first)});
    EXPECT_TRUE(filled.ok()) << filled.error().message;
  }
  auto ranks = LocalRanks::start(model, behind);
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  auto logits =
      (*ranks)->forward({tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end()}, 0, 0,
                        static_cast<int64_t>(first));
  EXPECT_TRUE(logits.ok()) << logits.error().message;
  return std::move(*logits);
}

TEST(LongContext, LastPositionsFollowTheReference) {
  constexpr int64_t kContext = 4096;
  const model::Model model = demo_model(kContext, true);
  const Logits fast = last_logits(model, options_for("auto", kContext));
  const Logits exact = last_logits(model, options_for("reference", kContext));
  expect_close(compare(fast, exact), kContext);
  // Other angles are seen.
  const model::Model plain = demo_model(kContext, false);
  const Logits other = last_logits(plain, options_for("auto", kContext));
  EXPECT_GT(compare(other, exact).mean, 2 * kMeanMax);
}

TEST(LongContext, WholeSequencesFollowTheReference) {
  if (std::getenv("NUMOE_FULL") == nullptr) GTEST_SKIP() << "minutes; set NUMOE_FULL=1";
  for (const int64_t context : {4096, 8192}) {
    const model::Model model = demo_model(context, true);
    const auto tokens = random_tokens(context, model.spec.vocabulary);
    auto fast = LocalRanks::start(model, options_for("auto", context));
    auto exact = LocalRanks::start(model, options_for("reference", context));
    ASSERT_TRUE(fast.ok() && exact.ok());
    const auto a = (*fast)->forward(tokens), b = (*exact)->forward(tokens);
    ASSERT_TRUE(a.ok() && b.ok());
    expect_close(compare(*a, *b), context);
  }
}

}  // namespace
}  // namespace engine
