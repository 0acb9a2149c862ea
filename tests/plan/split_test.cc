// Every row exactly once, shares near their ideal, for generated shapes.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <random>

#include "base/limits.h"

namespace plan {
namespace {

model::ModelSpec random_spec(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  model::ModelSpec spec;
  spec.vocabulary = pick(1, 2000);
  spec.hidden = pick(1, 64) * pick(1, 64);
  for (int layer = 0; layer < 3; layer++) {
    model::Block block;
    block.attention.kv_heads = pick(1, 9);
    block.attention.heads = block.attention.kv_heads * pick(1, 8);
    block.attention.head_dim = block.attention.value_dim = 8 * pick(1, 16);
    if (pick(0, 1) == 1) {
      block.experts.emplace();
      block.experts->count = pick(1, 200);
      block.experts->width = pick(1, 1500);
    } else {
      block.dense_width = pick(1, 5000);
    }
    spec.blocks.push_back(block);
  }
  return spec;
}

// The ranges follow each other from 0 to `total`, and every inner boundary is a multiple.
void expect_partition(const std::vector<Range>& ranges, int64_t total, int64_t multiple) {
  int64_t next = 0;
  for (const Range& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_LE(range.begin, range.end);
    if (range.end != total) {
      EXPECT_EQ(range.end % multiple, 0);
    }
    next = range.end;
  }
  EXPECT_EQ(next, total);
}

TEST(SplitRows, IsAPartitionNearTheShares) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; round++) {
    const int64_t total = std::uniform_int_distribution<int64_t>(0, 9000)(random);
    std::vector<double> shares(std::uniform_int_distribution<size_t>(1, 12)(random));
    double sum = 0;
    for (double& share : shares) {
      share = std::uniform_real_distribution<double>(0.1, 3)(random);
      sum += share;
    }
    const auto ranges = split_rows(total, shares, 32);
    ASSERT_EQ(ranges.size(), shares.size());
    expect_partition(ranges, total, 32);
    for (size_t i = 0; i < shares.size(); i++) {
      const double ideal = static_cast<double>(total) * shares[i] / sum;
      EXPECT_NEAR(static_cast<double>(ranges[i].size()), ideal, 32.0 + 1e-6);
    }
  }
}

TEST(PlanRows, CoversEveryRowOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; round++) {
    const model::ModelSpec spec = random_spec(random);
    const int rank_count = std::uniform_int_distribution<int>(1, 9)(random);
    auto plan = split(spec, {.rank_count = rank_count, .shares = {}});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto check = [&](auto range_of, int64_t total, int64_t multiple) {
      std::vector<Range> ranges;
      for (const RankShare& rank : plan->ranks) ranges.push_back(range_of(rank));
      expect_partition(ranges, total, multiple);
    };
    check([](const RankShare& r) { return r.vocabulary; }, spec.vocabulary, base::kSliceRows);
    for (size_t i = 0; i < spec.blocks.size(); i++) {
      const model::Block& b = spec.blocks[i];
      check([&](const RankShare& r) { return r.blocks[i].heads; }, b.attention.heads, 1);
      check([&](const RankShare& r) { return r.blocks[i].hidden; }, spec.hidden, 32);
      check([&](const RankShare& r) { return r.blocks[i].experts; },
            b.experts ? b.experts->count : 0, 32);
      check([&](const RankShare& r) { return r.blocks[i].width; },
            b.experts ? b.experts->width : b.dense_width, 32);
    }
  }
}

TEST(PlanRows, KeepsTheKvHeadsOfItsQueryHeads) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; round++) {
    const model::ModelSpec spec = random_spec(random);
    auto plan = split(spec, {.rank_count = 1 + round % 7, .shares = {}});
    ASSERT_TRUE(plan.ok());
    for (const RankShare& rank : plan->ranks) {
      for (size_t i = 0; i < spec.blocks.size(); i++) {
        const model::Attention& attention = spec.blocks[i].attention;
        const BlockShare& share = rank.blocks[i];
        EXPECT_EQ(share.heads.empty(), share.kv_heads.empty());
        const int64_t group = attention.heads / attention.kv_heads;
        for (int64_t head = share.heads.begin; head < share.heads.end; head++) {
          EXPECT_TRUE(share.kv_heads.contains(head / group));
        }
        if (!share.heads.empty()) {  // and none that they do not touch
          EXPECT_EQ(share.kv_heads.begin, share.heads.begin / group);
          EXPECT_EQ(share.kv_heads.end, (share.heads.end - 1) / group + 1);
        }
      }
    }
  }
}

// Four KV heads over eight ranks: every KV head is kept twice, and the plan says what that costs.
TEST(PlanRows, SaysWhichKvHeadsAreCopied) {
  model::ModelSpec spec;
  spec.vocabulary = 1000;
  spec.hidden = 2048;
  model::Block block;
  block.attention.heads = 32;
  block.attention.kv_heads = 4;
  block.attention.head_dim = block.attention.value_dim = 128;
  block.dense_width = 4096;
  spec.blocks = {block, block};
  auto eight = split(spec, {.rank_count = 8, .shares = {}});
  ASSERT_TRUE(eight.ok());
  const std::string text = describe(*eight, spec);
  EXPECT_NE(text.find("rows over 8 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: query heads 4-7, KV heads 0-0,"), std::string::npos) << text;
  EXPECT_NE(text.find("8 copies beside 8 over all layers, 100 % more"), std::string::npos) << text;
  auto four = split(spec, {.rank_count = 4, .shares = {}});
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(describe(*four, spec).find("copies"), std::string::npos);
  auto many = split(spec, {.rank_count = 33, .shares = {}});
  ASSERT_TRUE(many.ok());
  EXPECT_NE(describe(*many, spec).find("query heads none"), std::string::npos);
}

TEST(PlanRows, RefusesBadOptions) {
  const model::ModelSpec spec;
  EXPECT_FALSE(split(spec, {.rank_count = 0, .shares = {}}).ok());
  EXPECT_FALSE(split(spec, {.rank_count = base::kRanksMax + 1, .shares = {}}).ok());
  EXPECT_FALSE(split(spec, {.rank_count = 2, .shares = {1.0}}).ok());
  EXPECT_FALSE(split(spec, {.rank_count = 2, .shares = {1.0, 0.0}}).ok());
}

}  // namespace
}  // namespace plan
