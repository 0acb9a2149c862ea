// Experts that belong to one rank each: the same bits as split by rows, whoever owns which; and how
// often each was chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

constexpr auto kExperts = plan::Strategy::kExperts;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// How often the experts of each layer are used: one far more than the others.
std::vector<std::vector<double>> skewed_use(const model::ModelSpec& spec, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<double>> use;
  for (const model::Block& block : spec.blocks) {
    use.emplace_back();
    for (int e = 0; block.experts && e < block.experts->count; e++) {
      use.back().push_back(static_cast<double>(random() % 100));
    }
    if (!use.back().empty()) use.back()[random() % use.back().size()] = 1e6;
  }
  return use;
}

/// Every position of one sequence: at once, in chunks, and the last ones one by one.
std::vector<std::vector<float>> logits_in_three_ways(LocalRanks& ranks,
                                                     const std::vector<int32_t>& tokens) {
  std::vector<std::vector<float>> all;
  const auto keep = [&](const base::Result<Logits>& got) {
    ASSERT_TRUE(got.ok()) << got.error().message;
    all.insert(all.end(), got->positions.begin(), got->positions.end());
  };
  keep(ranks.forward(tokens));
  keep(ranks.forward(tokens, 5, 10));
  const auto most = tokens.begin() + static_cast<int64_t>(tokens.size() / 2);
  keep(ranks.forward({tokens.begin(), most}, 0, 20));
  keep(ranks.forward({most, tokens.end()}, 1, 20, most - tokens.begin()));
  return all;
}

/// What a case has that others have not.
struct Kinds {
  int shared = 0, weighed_shared = 0, biases = 0, weighed_input = 0, dense_layers = 0;

  void add(const model::Model& model) {
    for (size_t i = 0; i < model.blocks.size(); i++) {
      const auto& experts = model.spec.blocks[i].experts;
      if (!experts) {
        dense_layers++;
        continue;
      }
      shared += experts->shared_width > 0;
      weighed_shared += experts->weighs_shared;
      weighed_input += experts->weighs_input;
      biases += model.blocks[i].down_bias != nullptr;
    }
  }
};

TEST(WholeExperts, GiveTheBitsOfRows) {
  Kinds kinds;
  size_t compared = 0;
  unsigned seed = 1;
  for (const char* name :
       {"qwen3moe-q4_k", "olmoe-f32", "odd-tied-q4_0", "mixtral-f16", "qwen2moe-f16",
        "granitemoe-f16", "deepseek2-lite-f16", "deepseek2-v3-mla-f16", "gpt-oss-f16", "llama4-f16",
        "ernie4_5-moe-f16"}) {
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    kinds.add(*model);
    const std::vector<int32_t>& tokens = one.reference[1].tokens;
    auto rows = LocalRanks::start(*model, {});
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    const auto want = logits_in_three_ways(**rows, tokens);
    ASSERT_EQ(want.size(), 3 * tokens.size());
    for (const LocalRanksOptions& options : std::vector<LocalRanksOptions>{
             {.ranks = 1, .threads = 2, .strategy = kExperts},
             {.ranks = 2, .threads = 1, .strategy = kExperts},
             {.ranks = 2,
             .threads = 3,
             .strategy = kExperts,
             .expert_use = skewed_use(model->spec, seed++)},
             {.ranks = 3, .threads = 2, .strategy = kExperts, .shares = {1, 7, 2}},
             // All experts on one rank: another has attention, but none of them.
             {.ranks = 2, .threads = 2, .strategy = kExperts, .shares = {100, 1}},
             {.ranks = 4,
             .threads = 1,
             .strategy = kExperts,
             .expert_use = skewed_use(model->spec, seed++)}}) {
      SCOPED_TRACE(std::string(name) + " over " + std::to_string(options.ranks) + " ranks of " +
                   std::to_string(options.threads) + " threads");
      auto whole = LocalRanks::start(*model, options);
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      const auto got = logits_in_three_ways(**whole, tokens);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); i++) ASSERT_TRUE(same_bits(got[i], want[i])) << i;
      compared++;
    }
  }
  EXPECT_EQ(compared, 66u);
  for (const int count : {kinds.shared, kinds.weighed_shared, kinds.biases, kinds.weighed_input,
                          kinds.dense_layers}) {
    EXPECT_GT(count, 0) << "a kind of experts that no case has";
  }
}

// More ranks than experts: some have none in any layer, and still do their part of the rest.
TEST(WholeExperts, LeaveRanksWithoutAny) {
  const GoldenCase one = golden_case("mixtral-f16");
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const int ranks = model->spec.blocks[0].experts->count + 2;
  ASSERT_LE(ranks, 12);
  const std::vector<int32_t>& tokens = one.reference[1].tokens;
  auto rows = LocalRanks::start(*model, {});
  auto whole = LocalRanks::start(*model, {.ranks = ranks, .strategy = kExperts});
  ASSERT_TRUE(rows.ok() && whole.ok());
  EXPECT_EQ(logits_in_three_ways(**whole, tokens), logits_in_three_ways(**rows, tokens));
}

// Several sequences in one step, each alone by rows.
TEST(WholeExperts, GiveTheSameInAnyBatch) {
  for (const char* name : {"qwen3moe-q4_k", "qwen2moe-f16", "gpt-oss-f16"}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto vocabulary = static_cast<size_t>(model->spec.vocabulary);
    auto rows = LocalRanks::start(*model, {});
    auto whole = LocalRanks::start(*model, {.ranks = 3, .threads = 2, .strategy = kExperts});
    ASSERT_TRUE(rows.ok() && whole.ok());
    Step step;
    std::vector<std::vector<float>> alone;
    for (int32_t s = 0; s < 8; s++) {
      const auto length = static_cast<int64_t>(s) * 2 + 1;
      const auto& from = one.reference[2].tokens;
      const std::vector<int32_t> tokens(from.begin() + s, from.begin() + s + length);
      auto got = (*rows)->forward(tokens);
      ASSERT_TRUE(got.ok());
      alone.push_back(got->last());
      // All but the last token are in the cache when the step of all sequences comes.
      if (length > 1) {
        ASSERT_TRUE((*whole)->forward({tokens.begin(), tokens.end() - 1}, 0, s).ok());
      }
      step.block_tables.push_back({s});
      step.columns.push_back(
          {.token = tokens.back(), .sequence = s, .position = length - 1, .wants_logits = 1});
    }
    auto together = (*whole)->runner().run(step);
    ASSERT_TRUE(together.ok()) << together.error().message;
    for (size_t s = 0; s < alone.size(); s++) {
      EXPECT_EQ(std::memcmp(together->logits.data() + s * vocabulary, alone[s].data(),
                            vocabulary * sizeof(float)),
                0)
          << "sequence " << s;
    }
  }
}

// Over ZeroMQ slices have any length; those of whole experts differ from step to step.
TEST(WholeExperts, ExchangeByMessagesToo) {
  const GoldenCase one = golden_case("qwen2moe-f16");
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<int32_t>& tokens = one.reference[1].tokens;
  auto rows = LocalRanks::start(*model, {});
  auto whole = LocalRanks::start(
      *model, {.ranks = 3, .threads = 2, .exchange = "zmq", .strategy = kExperts});
  ASSERT_TRUE(rows.ok());
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(logits_in_three_ways(**whole, tokens), logits_in_three_ways(**rows, tokens));
}

TEST(ExpertUse, IsTheNumberOfChoices) {
  for (const auto strategy : {plan::Strategy::kRows, kExperts}) {
    for (const char* name : {"qwen3moe-q4_k", "deepseek2-lite-f16"}) {
      const GoldenCase one = golden_case(name);
      auto model = model::load_model(one.path);
      ASSERT_TRUE(model.ok()) << model.error().message;
      auto ranks = LocalRanks::start(*model, {.ranks = 2, .threads = 2, .strategy = strategy});
      ASSERT_TRUE(ranks.ok()) << ranks.error().message;
      std::vector<std::vector<uint64_t>> want;
      for (const model::Block& block : model->spec.blocks) {
        want.emplace_back(block.experts ? static_cast<size_t>(block.experts->count) : 0);
      }
      EXPECT_EQ((*ranks)->leader().expert_use(), want) << "before the first step";
      for (const int chunk : {0, 7, 1}) {
        auto got = (*ranks)->forward(one.reference[2].tokens, chunk);
        ASSERT_TRUE(got.ok());
        for (size_t layer = 0; layer < want.size(); layer++) {
          for (const auto& column : got->experts[layer]) {
            for (const int32_t expert : column) want[layer][static_cast<size_t>(expert)]++;
          }
        }
      }
      EXPECT_EQ((*ranks)->leader().expert_use(), want);
    }
  }
}

}  // namespace
}  // namespace engine
