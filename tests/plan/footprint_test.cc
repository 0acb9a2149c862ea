// What the planner counts is what ranks hold: compared with the engine's own maps.
#include "plan/footprint.h"

#include <gtest/gtest.h>

#include <random>

#include "base/cat.h"
#include "base/limits.h"
#include "engine/rank_engine.h"
#include "engine/weights.h"
#include "tests/plan/machines.h"
#include "worker/near_blocks.h"

namespace plan {
namespace {

struct ModelCase {
  const char* preset;
  const char* type;
  int64_t layers;
};
// Few layers: they repeat. Of DeepSeek dense ones and one with experts; of gpt-oss both reaches.
constexpr ModelCase kModels[] = {{"olmoe-1b-7b", "q4_k", 2},  {"qwen3-30b-a3b", "q8_0", 2},
                                 {"mixtral-8x7b", "q5_k", 2}, {"deepseek-v2-lite", "q4_k", 2},
                                 {"deepseek-v3", "q4_k", 4},  {"gpt-oss-20b", "mxfp4", 2},
                                 {"glm-4.5-air", "q6_k", 2},  {"minimax-m2", "iq4_xs", 2}};

/// Splits of one model that differ in strategy, ranks and shares.
std::vector<SplitOptions> splits(const model::Model& model) {
  const auto layers = static_cast<int>(model.spec.blocks.size());
  std::vector<SplitOptions> all;
  for (const Strategy strategy : {Strategy::kRows, Strategy::kExperts, Strategy::kLayers}) {
    for (const int ranks : {1, 2, 3}) {
      if (strategy == Strategy::kLayers && ranks > layers) continue;
      all.push_back({.strategy = strategy, .rank_count = ranks});
      if (ranks == 3) all.back().shares = {1, 2.5, 0.7};
    }
  }
  all.push_back({.strategy = Strategy::kLayers, .rank_count = 4, .stages = 2});
  return all;
}

TEST(Footprint, WeightsAreThoseOfTheEngine) {
  const kernels::Ops& ops = *kernels::all_ops().back();
  int compared = 0;
  for (const ModelCase& one : kModels) {
    const model::Model model = plan_test::preset(one.preset, one.type, one.layers);
    for (const SplitOptions& options : splits(model)) {
      const auto plan = split(model.spec, options);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      for (size_t r = 0; r < plan->ranks.size(); r++) {
        const engine::WeightMap map = engine::map_weights(model, plan->ranks[r], ops);
        EXPECT_EQ(footprint(model, plan->ranks[r], plan_test::packing()).weight_bytes, map.bytes)
            << one.preset << " " << one.type << " " << strategy_name(options.strategy) << " rank "
            << r << " of " << plan->ranks.size();
        compared++;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Footprint, BuffersAreThoseOfTheEngine) {
  for (const ModelCase& one : kModels) {
    const model::Model model = plan_test::preset(one.preset, one.type, one.layers);
    for (const SplitOptions& options : splits(model)) {
      const auto plan = split(model.spec, options);
      ASSERT_TRUE(plan.ok());
      for (const RankShare& share : plan->ranks) {
        EXPECT_EQ(kv_pool_bytes(model.spec, share, {}, {37, 11}),
                  engine::kv_pool_bytes(model.spec, share, kernels::KvType::kF16, {37, 11}));
        EXPECT_EQ(kv_pool_bytes(model.spec, share, {.bytes = 4}, {5, 0}),
                  engine::kv_pool_bytes(model.spec, share, kernels::KvType::kF32, {5, 0}));
        const kernels::KvElement q8 = kernels::kv_element(kernels::KvType::kQ8_0);
        EXPECT_EQ(kv_pool_bytes(model.spec, share,
                                {.bytes = q8.bytes, .scale_bytes = q8.scale_bytes}, {37, 11}),
                  engine::kv_pool_bytes(model.spec, share, kernels::KvType::kQ8_0, {37, 11}));
      }
      if (plan->rank_count() < 2) {
        EXPECT_EQ(exchange_bytes(model.spec, *plan, 128), 0u);
        continue;
      }
      const uint64_t slice = engine::slice_bytes_max(model.spec, *plan, 128);
      EXPECT_GE(exchange_bytes(model.spec, *plan, 128), 2 * slice);
      EXPECT_LE(exchange_bytes(model.spec, *plan, 128), 2 * slice + 8192);
    }
  }
}

TEST(Footprint, BlocksAreThoseOfTheWorker) {
  for (const ModelCase& one : kModels) {
    const model::Model model = plan_test::preset(one.preset, one.type, one.layers);
    for (const KvRoom& room :
         {KvRoom{4096, 4, 128}, KvRoom{65536, 1, 128}, KvRoom{131072, 8, 512}, KvRoom{100, 1, 1}}) {
      const KvBlocks blocks = kv_blocks(model.spec, room);
      engine::RunnerShape shape{.vocabulary = model.spec.vocabulary,
                                .context = room.context,
                                .kv_block_count = static_cast<int32_t>(blocks.all),
                                .columns_max = room.chunk};
      worker::plan_near_pool(model.spec, static_cast<int>(room.sequences), shape);
      EXPECT_EQ(blocks.near, shape.kv_near_count) << one.preset << " " << room.context;
      EXPECT_EQ(blocks.all, (room.context + base::kKvBlockPositions - 1) / base::kKvBlockPositions *
                                room.sequences);
    }
  }
}

// One token's reading, over all ranks, is what `numoe inspect` says of the whole model.
TEST(Footprint, RanksTogetherReadWhatTheModelHas) {
  const model::Model model = plan_test::preset("qwen3-30b-a3b", "q8_0", 3);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto plan = split(model.spec, {.rank_count = ranks});
    ASSERT_TRUE(plan.ok());
    uint64_t down = 0, gate_up = 0, logits = 0;
    for (const RankShare& share : plan->ranks) {
      const RankFootprint held = footprint(model, share, plan_test::packing());
      for (const auto& layer : held.layers) {
        for (const Piece& piece : layer) {
          if (piece.phase == Phase::kDown) down += piece.bytes();
          if (piece.phase == Phase::kGateUp) gate_up += piece.bytes();
        }
      }
      for (const Piece& piece : held.ends)
        if (piece.phase == Phase::kLogits) logits += piece.bytes();
    }
    // Q8_0: 34 bytes for 32 weights, rows in whole panels.
    EXPECT_EQ(down, 3u * 128 * 2048 * 768 / 32 * 34);
    EXPECT_EQ(gate_up, 2 * down);
    EXPECT_EQ(logits, 151936u * 2048 / 32 * 34);
  }
}

}  // namespace
}  // namespace plan
