// What happens inside a step besides the numbers: records are checked, decode allocates nothing,
// waits are few, threads meet.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>

#include "base/limits.h"
#include "engine/router.h"
#include "engine/step_record.h"
#include "tests/engine/allocations.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

const RunnerShape kShape{.vocabulary = 100,
                         .context = 200,
                         .kv_block_count = 9,
                         .columns_max = 8,
                         .logit_columns_max = 2};

Step good_step() {
  Step step;
  step.block_tables = {{3, 4}, {8}};
  step.columns = {{.token = 5, .sequence = 0, .position = 64, .wants_logits = 0},
                  {.token = 6, .sequence = 0, .position = 65, .wants_logits = 1},
                  {.token = 99, .sequence = 1, .position = 0, .wants_logits = 1}};
  return step;
}

std::vector<std::byte> encoded(const Step& step) {
  std::vector<std::byte> record(step_record_bytes_max(kShape));
  auto bytes = encode_step(step, kShape, record);
  EXPECT_TRUE(bytes.ok());
  record.resize(*bytes);
  return record;
}

TEST(StepRecord, RoundTrip) {
  StepView view(kShape);
  const auto record = encoded(good_step());
  ASSERT_TRUE(view.decode(record).ok());
  ASSERT_EQ(view.columns().size(), 3u);
  EXPECT_EQ(view.columns()[1].token, 6);
  EXPECT_EQ(view.columns()[1].position, 65);
  EXPECT_EQ(view.blocks(0).size(), 2u);
  EXPECT_EQ(view.blocks(1)[0], 8);
  ASSERT_EQ(view.wanted().size(), 2u);
  EXPECT_EQ(view.wanted()[0], 1);
  EXPECT_FALSE(view.one_column_each());
}

TEST(StepRecord, RefusesWhatIsOutOfRange) {
  const auto refused = [](auto change) {
    Step step = good_step();
    change(step);
    StepView view(kShape);
    std::vector<std::byte> record(step_record_bytes_max(kShape) + 1024);
    auto bytes = encode_step(step, kShape, record);
    if (!bytes.ok()) return true;
    return !view.decode({record.data(), *bytes}).ok();
  };
  EXPECT_FALSE(refused([](Step&) {}));
  EXPECT_TRUE(refused([](Step& s) { s.columns.clear(); }));
  EXPECT_TRUE(refused([](Step& s) { s.columns.resize(9, s.columns[0]); }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].token = 100; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].token = -1; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].sequence = 2; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].sequence = -1; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].position = 200; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].position = 128; }));  // no block for it
  EXPECT_TRUE(refused([](Step& s) { s.block_tables[0][1] = 9; }));
  EXPECT_TRUE(refused([](Step& s) { s.block_tables[0][1] = -1; }));
  EXPECT_TRUE(refused([](Step& s) { s.columns[0].wants_logits = 1; }));  // a third
}

// With a pool for near layers every block that a column reaches there must be given.
TEST(StepRecord, NearBlocksCoverWhatColumnsReach) {
  RunnerShape shape = kShape;
  shape.kv_near_count = 3;
  shape.near_span = 64;
  const auto refused = [&](auto change) {
    Step step = good_step();
    step.near_tables = {{1, 2}, {0}};
    change(step);
    StepView view(shape);
    std::vector<std::byte> record(step_record_bytes_max(shape));
    auto bytes = encode_step(step, shape, record);
    if (!bytes.ok() || !view.decode({record.data(), *bytes}).ok()) return true;
    EXPECT_EQ(view.near_blocks(0)[1], 2);
    EXPECT_EQ(view.blocks(0)[1], 4);
    return false;
  };
  EXPECT_FALSE(refused([](Step&) {}));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables[0][0] = -1; }));  // position 64 reaches 1
  EXPECT_FALSE(refused([](Step& s) {
    s.near_tables[0][0] = -1;
    s.columns.erase(s.columns.begin(), s.columns.begin() + 1);
    s.columns[0].position = 127;
  }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables[0][1] = -1; }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables[1][0] = 3; }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables[1][0] = -2; }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables.pop_back(); }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables[1].clear(); }));
  EXPECT_TRUE(refused([](Step& s) { s.near_tables = {{1}, {2, 0}}; }));
}

// Whatever bytes come, decode answers or refuses; it never reads outside (run under ASan).
TEST(StepRecord, SurvivesAnyBytes) {
  const auto record = encoded(good_step());
  StepView view(kShape);
  for (size_t cut = 0; cut < record.size(); cut++) {
    EXPECT_FALSE(view.decode({record.data(), cut}).ok()) << cut;
  }
  std::mt19937 random(4);
  size_t refused = 0;
  for (int round = 0; round < 20000; round++) {
    auto broken = record;
    for (int i = 0; i < 3; i++) {
      broken[random() % broken.size()] = static_cast<std::byte>(random());
    }
    if (!view.decode(broken).ok()) refused++;
  }
  EXPECT_GT(refused, 1000u);
}

TEST(Router, ChoosesTheBestAndTheLowerIdOnATie) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  model::Experts experts{.count = 6, .used = 3};
  experts.normalise_weights = true;
  float logits[] = {1, 2, 2, -1, 2, 0};
  int32_t chosen[3];
  float weights[3];
  float keys[12];
  ASSERT_TRUE(route({.experts = experts,
                     .ops = **ops,
                     .logits = logits,
                     .keys = keys,
                     .chosen = chosen,
                     .weights = weights}));
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 3), (std::vector<int32_t>{1, 2, 4}));
  for (const float w : weights) EXPECT_NEAR(w, 1.0 / 3, 1e-6);
}

// A bias decides who is chosen and not how much they count.
TEST(Router, TheSelectionBiasIsForTheChoiceOnly) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  const model::Experts experts{.count = 4, .used = 2, .score = model::RouterScore::kSigmoid};
  const float bias[] = {0, 10, 0, -10};
  float logits[] = {1, -2, 0, 5}, keys[8], weights[2];
  int32_t chosen[2];
  ASSERT_TRUE(route({.experts = experts,
                     .ops = **ops,
                     .logits = logits,
                     .selection_bias = bias,
                     .keys = keys,
                     .chosen = chosen,
                     .weights = weights}));
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 2), (std::vector<int32_t>{1, 0}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(2.0)), 1e-6);
  EXPECT_NEAR(weights[1], 1 / (1 + std::exp(-1.0)), 1e-6);
}

// The best logits are chosen, and only they share the weight.
TEST(Router, SoftmaxOfTheChosenLeavesTheOthersOut) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  const model::Experts experts{
      .count = 4, .used = 2, .score = model::RouterScore::kSoftmaxOfChosen};
  float logits[] = {-3, -1, 50, -2}, keys[8], weights[2];
  int32_t chosen[2];
  const RouteArgs args{.experts = experts,
                       .ops = **ops,
                       .logits = logits,
                       .keys = keys,
                       .chosen = chosen,
                       .weights = weights};
  ASSERT_TRUE(route(args));
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 2), (std::vector<int32_t>{2, 1}));
  EXPECT_NEAR(weights[0], 1, 1e-6);
  logits[2] = -2;  // ties with the last, before it
  ASSERT_TRUE(route(args));
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 2), (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(weights[0], 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(weights[1], 1 / (1 + std::exp(1.0)), 1e-6);
}

// Groups of two: by their best expert without a bias, by the sum of two with one.
TEST(Router, OnlyExpertsOfTheBestGroupsAreChosen) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  model::Experts experts{.count = 6, .used = 2, .score = model::RouterScore::kSigmoid};
  experts.groups = 3;
  experts.groups_used = 1;
  const float none[6] = {};
  for (const float* bias : {static_cast<const float*>(nullptr), none}) {
    float logits[] = {2, 1, 3, -9, 0, 0}, keys[12], weights[2];
    int32_t chosen[2];
    ASSERT_TRUE(route({.experts = experts,
                       .ops = **ops,
                       .logits = logits,
                       .selection_bias = bias,
                       .keys = keys,
                       .chosen = chosen,
                       .weights = weights}));
    const std::vector<int32_t> got(chosen, chosen + 2);
    EXPECT_EQ(got, bias == nullptr ? (std::vector<int32_t>{2, 3}) : (std::vector<int32_t>{0, 1}));
  }
}

// The lower group and the lower expert win ties, as everywhere.
TEST(Router, TiesOfGroupsGoToTheLowerOne) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  model::Experts experts{.count = 6, .used = 3};
  experts.groups = 3;
  experts.groups_used = 2;
  float logits[6] = {}, keys[12], weights[3];
  int32_t chosen[3];
  ASSERT_TRUE(route({.experts = experts,
                     .ops = **ops,
                     .logits = logits,
                     .keys = keys,
                     .chosen = chosen,
                     .weights = weights}));
  EXPECT_EQ(std::vector<int32_t>(chosen, chosen + 3), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Router, NonFiniteScoresGiveDistinctIdsAndNoWeight) {
  auto ops = kernels::find_ops("auto");
  ASSERT_TRUE(ops.ok());
  model::Experts experts{.count = 4, .used = 3};
  for (const auto& [score, bad] : {std::pair{model::RouterScore::kSoftmax, NAN},
                                   {model::RouterScore::kSoftmax, INFINITY},
                                   {model::RouterScore::kSigmoid, -INFINITY},
                                   {model::RouterScore::kSoftmaxOfChosen, NAN},
                                   {model::RouterScore::kSoftmaxOfChosen, -INFINITY}}) {
    experts.score = score;
    float logits[] = {1, bad, 3, 2};
    int32_t chosen[3] = {7, 7, 7};
    float weights[3];
    float keys[8];
    EXPECT_FALSE(route({.experts = experts,
                        .ops = **ops,
                        .logits = logits,
                        .keys = keys,
                        .chosen = chosen,
                        .weights = weights}));
    for (int i = 0; i < 3; i++) {
      EXPECT_EQ(chosen[i], i);
      EXPECT_EQ(weights[i], 0);
    }
  }
}

TEST(Team, EveryThreadRunsEveryJobOnce) {
  auto team = ThreadTeam::start({-1, -1, -1});
  ASSERT_TRUE(team.ok());
  std::array<std::atomic<int>, 3> counts{};
  for (int round = 1; round <= 2000; round++) {
    (*team)->run([&](int t) { counts[static_cast<size_t>(t)]++; });
    for (const auto& count : counts) ASSERT_EQ(count.load(), round);
  }
}

TEST(Team, BarrierSeparatesAndBreaks) {
  auto team = ThreadTeam::start({-1, -1, -1, -1});
  ASSERT_TRUE(team.ok());
  Barrier barrier(4);
  std::array<int, 4> written{};
  std::atomic<int> wrong{0};
  (*team)->run([&](int t) {
    for (int round = 1; round <= 500; round++) {
      written[static_cast<size_t>(t)] = round;
      if (barrier.arrive_and_wait(t) != base::Wait::kOk) wrong++;
      for (const int other : written) wrong += other != round;
      if (barrier.arrive_and_wait(t) != base::Wait::kOk) wrong++;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  std::atomic<int> aborted{0};
  (*team)->run([&](int t) {
    if (t == 3) {
      barrier.abort();
    } else if (barrier.arrive_and_wait(t) == base::Wait::kAborted) {
      aborted++;
    }
  });
  EXPECT_EQ(aborted.load(), 3);
}

TEST(Team, RefusesACpuThatDoesNotExist) {
  EXPECT_FALSE(ThreadTeam::start({-1, 100'000}).ok());
}

// A decode step: no allocation on any thread of any rank, at most six waits in a layer, nine where
// attention goes through a latent.
TEST(Decode, AllocatesNothingAndWaitsSeldom) {
  struct Bound {
    const char* name;
    uint64_t waits_min, waits_max;
  };
  for (const auto& [name, waits_min, waits_max] :
       {Bound{"qwen3moe-q4_k", 4, 6}, Bound{"olmoe-f32", 4, 6}, Bound{"mixtral-f16", 4, 6},
        Bound{"qwen3-tied-f16", 4, 6}, Bound{"ernie4_5-moe-f16", 4, 6},
        Bound{"deepseek2-v3-mla-f16", 7, 9}, Bound{"deepseek2-lite-f16", 7, 9}}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto ranks = LocalRanks::start(*model, {.ranks = 2, .threads = 2});
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    Step step;
    step.block_tables = {{0, 1}};
    step.columns = {{.token = 1, .sequence = 0, .position = 0, .wants_logits = 1}};
    for (int64_t position = 0; position < 70; position++) {
      step.columns[0].position = position;
      const int64_t before = allocation_count();
      auto output = (*ranks)->runner().run(step);
      const int64_t after = allocation_count();
      ASSERT_TRUE(output.ok());
      if (position > 0) {
        EXPECT_EQ(after - before, 0) << "position " << position;
      }
    }
    const StepStats stats = (*ranks)->leader().stats();
    EXPECT_LE(stats.layer_waits, waits_max * stats.layers);
    EXPECT_GE(stats.layer_waits, waits_min * stats.layers);
    EXPECT_EQ(stats.steps, 70u);
  }
}

// A rank waits in its own layers, and once for each stage that it has no part in.
TEST(Decode, WaitsOnceForOtherStages) {
  for (const char* name : {"qwen3moe-q4_k", "olmoe-f32", "deepseek2-v3-mla-f16", "llama4-f16"}) {
    SCOPED_TRACE(name);
    auto model = model::load_model(golden_case(name).path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto layers = static_cast<int>(model->spec.blocks.size());
    const auto waits = [&](const LocalRanksOptions& options) {
      auto ranks = LocalRanks::start(*model, options);
      EXPECT_TRUE(ranks.ok() && (*ranks)->forward({1}).ok());
      return (*ranks)->leader().stats().layer_waits;
    };
    // With one thread a rank meets in gathers only.
    uint64_t all = 0;
    for (const model::Block& block : model->spec.blocks) all += gathers_of(block, {});
    EXPECT_EQ(waits({.ranks = 2}), all);
    EXPECT_EQ(waits({.ranks = layers, .strategy = plan::Strategy::kLayers}),
              gathers_of(model->spec.blocks[0], {}) + static_cast<uint64_t>(layers - 1));
  }
}

}  // namespace
}  // namespace engine
