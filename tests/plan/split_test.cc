// Every row exactly once, shares near their ideal, for generated shapes.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
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

double load_of(const BlockShare& share, const std::vector<double>& use) {
  double load = 0;
  for (const int32_t expert : share.owned) load += use[static_cast<size_t>(expert)];
  return load;
}

// Every expert on one rank, as many on each as its share of the bytes says, whatever the use.
TEST(PlanExperts, GivesEachExpertToOneRankByShares) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; round++) {
    model::ModelSpec spec = random_spec(random);
    spec.blocks[0].experts.emplace();
    spec.blocks[0].experts->count = std::uniform_int_distribution<int>(1, 200)(random);
    spec.blocks[0].experts->width = 64;
    std::vector<double> shares(std::uniform_int_distribution<size_t>(1, 9)(random));
    double sum = 0;
    for (double& share : shares) sum += share = std::uniform_real_distribution(0.1, 3.0)(random);
    std::vector<std::vector<double>> use;
    for (const model::Block& block : spec.blocks) {
      use.emplace_back();
      for (int e = 0; block.experts && e < block.experts->count; e++)
        use.back().push_back(static_cast<double>(random() % 1000));
    }
    if (round % 3 == 0) use.clear();
    auto plan = split(spec, {.strategy = Strategy::kExperts,
                             .rank_count = static_cast<int>(shares.size()),
                             .shares = shares,
                             .expert_use = use});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    for (size_t i = 0; i < spec.blocks.size(); i++) {
      const auto& experts = spec.blocks[i].experts;
      std::vector<int> owners(static_cast<size_t>(experts ? experts->count : 0));
      for (size_t r = 0; r < shares.size(); r++) {
        const BlockShare& share = plan->ranks[r].blocks[i];
        EXPECT_EQ(share.whole_experts, experts.has_value());
        EXPECT_TRUE(std::is_sorted(share.owned.begin(), share.owned.end()));
        for (const int32_t expert : share.owned) owners[static_cast<size_t>(expert)]++;
        if (!experts) continue;
        EXPECT_EQ(share.width, (Range{0, experts->width}));
        EXPECT_NEAR(static_cast<double>(share.owned.size()), experts->count * shares[r] / sum, 1.0);
      }
      for (const int count : owners) EXPECT_EQ(count, 1);
    }
  }
}

// Use like that of real models: few experts far above the others. The most used rank has less to
// do than without counts, and never more.
TEST(PlanExperts, BalancesMeasuredUse) {
  std::mt19937 random(5);
  int better = 0;
  for (int round = 0; round < 200; round++) {
    model::ModelSpec spec;
    spec.vocabulary = 100;
    spec.hidden = 64;
    model::Block block;
    block.attention.heads = block.attention.kv_heads = 8;
    block.attention.head_dim = block.attention.value_dim = 8;
    block.experts.emplace();
    block.experts->count = 64;
    block.experts->width = 64;
    spec.blocks = {block};
    std::vector<double> use;
    for (int e = 0; e < 64; e++) use.push_back(1000.0 / (1 + e));
    std::shuffle(use.begin(), use.end(), random);
    const int ranks = 2 + round % 3;
    const auto most = [&](std::vector<std::vector<double>> counts) {
      auto plan = split(spec, {.strategy = Strategy::kExperts,
                               .rank_count = ranks,
                               .shares = {},
                               .expert_use = std::move(counts)});
      EXPECT_TRUE(plan.ok());
      double load = 0;
      for (const RankShare& rank : plan->ranks) load = std::max(load, load_of(rank.blocks[0], use));
      return load;
    };
    const double balanced = most({use}), unaware = most({});
    EXPECT_LE(balanced, 1.01 * unaware);  // ranks own equally many, so luck may be as good
    better += balanced < 0.999 * unaware;
    // The best there can be: the mean, or the most used expert alone.
    const double total = std::accumulate(use.begin(), use.end(), 0.0);
    EXPECT_LE(balanced, 1.1 * std::max(total / ranks, 1000.0));
  }
  EXPECT_GE(better, 190);
}

TEST(PlanExperts, RefusesForeignCounts) {
  std::mt19937 random(6);
  model::ModelSpec spec = random_spec(random);
  spec.blocks.resize(1);
  spec.blocks[0].experts.emplace();
  spec.blocks[0].experts->count = 4;
  const auto ok = [&](std::vector<std::vector<double>> use) {
    return split(spec, {.strategy = Strategy::kExperts,
                        .rank_count = 2,
                        .shares = {},
                        .expert_use = std::move(use)})
        .ok();
  };
  EXPECT_TRUE(ok({{1, 2, 3, 4}}));
  EXPECT_TRUE(ok({{0, 0, 0, 0}}));
  EXPECT_FALSE(ok({{1, 2, 3}}));
  EXPECT_FALSE(ok({{1, 2, 3, 4}, {1, 2, 3, 4}}));
  EXPECT_FALSE(ok({{1, 2, 3, -4}}));
  spec.blocks[0].experts.reset();
  EXPECT_FALSE(ok({}));  // a model without experts
}

// Each layer has members, which share it as ranks of their own would; nobody else has any of it.
TEST(PlanLayers, GivesEachLayerToOneStage) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; round++) {
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    model::ModelSpec spec = random_spec(random);
    while (static_cast<int>(spec.blocks.size()) < 3 + round % 20)
      spec.blocks.push_back(spec.blocks[static_cast<size_t>(pick(0, 2))]);
    const int ranks = pick(1, 9), layers = static_cast<int>(spec.blocks.size());
    SplitOptions options{.strategy = Strategy::kLayers,
                         .rank_count = ranks,
                         .stages = pick(1, std::min(ranks, layers))};
    for (int r = 0; r < ranks && round % 2 == 0; r++)
      options.shares.push_back(std::uniform_real_distribution<double>(0.1, 3)(random));
    const auto plan = split(spec, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_EQ(plan->members.size(), spec.blocks.size());
    int last = -1;  // rank of the stages so far
    for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
      const base::RankSet members = plan->members[layer];
      ASSERT_NE(members.bits, 0u);
      if (plan->begins_stage(layer)) {
        EXPECT_GT(members.first(), last) << "stages are of consecutive ranks";
        last = 63 - std::countl_zero(members.bits);
      }
      std::vector<Range> hidden, heads;
      for (int r = 0; r < ranks; r++) {
        const BlockShare& share = plan->ranks[static_cast<size_t>(r)].blocks[layer];
        EXPECT_EQ(share.takes_part, members.contains(r));
        if (members.contains(r)) {
          hidden.push_back(share.hidden);
          heads.push_back(share.heads);
          continue;
        }
        for (const Range& range : {share.heads, share.kv_heads, share.hidden, share.experts,
                                   share.width, share.shared_width, share.query_rank, share.latent})
          EXPECT_TRUE(range.empty());
      }
      expect_partition(hidden, spec.hidden, base::kSliceRows);
      expect_partition(heads, spec.blocks[layer].attention.heads, 1);
    }
    EXPECT_EQ(plan->has_stages(), options.stages > 1);
  }
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
