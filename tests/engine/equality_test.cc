// Promise 2 on the engine: the same bits for any number of ranks and threads, any instruction set,
// any chunking, any batch, any KV blocks.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

const std::vector<int> kRanks = {1, 2, 3, 4};
const std::vector<int> kThreads = {1, 2};
// "auto" for those that this CPU cannot run.
const std::vector<std::string> kIsas = {"scalar", "avx2", "avx512vl", "avx512vnni"};
const std::vector<size_t> kPrompts = {1, 17, 70};
const std::vector<int> kChunks = {0, 1, 3, 16, 33, 64};  // 0: all at once

// One format each, one architecture each, and shapes that do not divide: heads, widths, vocabulary,
// a norm over all heads. qwen3moe-ud-mix has nine quantised types, three without a fast path.
const std::vector<std::string> kCases = {"qwen3moe-f16",
                                         "qwen3moe-bf16",
                                         "qwen3moe-q8_0",
                                         "qwen3moe-q4_k",
                                         "qwen3moe-q6_k",
                                         "qwen3moe-ud-mix",
                                         "olmoe-f32",
                                         "mixtral-f16",
                                         "llama-rope-factors-f16",
                                         "odd-tied-q4_0",
                                         "qwen3-tied-f16",
                                         "qwen2-f16",
                                         "qwen2moe-f16",
                                         "dots1-f16",
                                         "ernie4_5-moe-f16",
                                         "granitemoe-f16",
                                         "glm4moe-f16",
                                         "minimax-m2-f16",
                                         "deepseek2-lite-f16",
                                         "deepseek2-v3-mla-f16",
                                         "gpt-oss-f16",
                                         "llama4-f16"};

constexpr size_t kRandomPoints = 25;  // of each case

// Indices into the lists above.
enum Factor { kRankFactor, kThreadFactor, kIsaFactor, kPromptFactor, kChunkFactor, kFactorCount };
using Point = std::array<size_t, kFactorCount>;
const std::array<size_t, kFactorCount> kLevels = {kRanks.size(), kThreads.size(), kIsas.size(),
                                                  kPrompts.size(), kChunks.size()};

std::vector<Point> full_product() {
  std::vector<Point> points = {Point{}};
  for (size_t f = 0; f < kFactorCount; f++) {
    std::vector<Point> next;
    for (const Point& point : points) {
      for (size_t level = 0; level < kLevels[f]; level++) {
        next.push_back(point);
        next.back()[f] = level;
      }
    }
    points = next;
  }
  return points;
}

// One factor at a time from the base point, points that cover all pairs of levels, and random ones.
std::vector<Point> sample(unsigned seed) {
  std::set<Point> chosen;
  for (size_t f = 0; f < kFactorCount; f++) {
    for (size_t level = 0; level < kLevels[f]; level++) {
      Point point{0, 0, 0, 2, 0};
      point[f] = level;
      chosen.insert(point);
    }
  }
  std::mt19937 random(seed);
  std::vector<Point> product = full_product();
  std::shuffle(product.begin(), product.end(), random);
  std::set<std::array<size_t, 4>> covered;
  for (const Point& point : product) {
    bool adds = false;
    for (size_t a = 0; a < kFactorCount; a++) {
      for (size_t b = a + 1; b < kFactorCount; b++) {
        adds |= covered.insert({a, point[a], b, point[b]}).second;
      }
    }
    if (adds) chosen.insert(point);
  }
  for (size_t i = 0, added = 0; i < product.size() && added < kRandomPoints; i++) {
    added += chosen.insert(product[i]).second;
  }
  return {chosen.begin(), chosen.end()};
}

// The ISA of a level, or the best one here if this CPU cannot run it.
std::string isa_at(size_t level) {
  return kernels::find_ops(kIsas[level]).ok() ? kIsas[level] : "auto";
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Equality, OverRanksThreadsIsasPromptsAndChunks) {
  // The sanitizers look for other things than bits; there the sample has to do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const bool full = false;
#else
  const bool full = std::getenv("NUMOE_FULL") != nullptr;
#endif
  size_t compared = 0;
  for (size_t i = 0; i < kCases.size(); i++) {
    const GoldenCase one = golden_case(kCases[i]);
    ASSERT_EQ(one.reference.size(), kPrompts.size());
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    // Points of one group of ranks together; the base point comes first in every prompt.
    std::map<std::array<size_t, 3>, std::vector<Point>> groups;
    for (const Point& p : full ? full_product() : sample(static_cast<unsigned>(i))) {
      groups[{p[0], p[1], p[2]}].push_back(p);
    }
    groups[{0, 0, 0}];  // the base group always runs, and first
    std::map<size_t, std::vector<float>> base;
    for (const auto& [key, points] : groups) {
      auto ranks = LocalRanks::start(
          *model, {.ranks = kRanks[key[0]], .threads = kThreads[key[1]], .isa = isa_at(key[2])});
      ASSERT_TRUE(ranks.ok()) << ranks.error().message;
      if (base.empty()) {
        for (size_t prompt = 0; prompt < kPrompts.size(); prompt++) {
          auto got = (*ranks)->forward(one.reference[prompt].tokens);
          ASSERT_TRUE(got.ok()) << got.error().message;
          base[prompt] = got->last();
        }
      }
      for (const Point& p : points) {
        SCOPED_TRACE(one.name + ": ranks " + std::to_string(kRanks[p[0]]) + " threads " +
                     std::to_string(kThreads[p[1]]) + " " + kIsas[p[2]] + " prompt " +
                     std::to_string(kPrompts[p[3]]) + " chunk " + std::to_string(kChunks[p[4]]));
        const auto& tokens = one.reference[p[kPromptFactor]].tokens;
        ASSERT_EQ(tokens.size(), kPrompts[p[kPromptFactor]]);
        auto got = (*ranks)->forward(tokens, kChunks[p[kChunkFactor]]);
        ASSERT_TRUE(got.ok()) << got.error().message;
        ASSERT_TRUE(same_bits(got->last(), base[p[kPromptFactor]]));
        compared++;
      }
    }
  }
  std::cout << compared << " points compared" << (full ? " (full product)\n" : "\n");
  EXPECT_GE(compared, full ? 2000u : 1000u);
}

// Several sequences in one step, in odd KV blocks, against each alone.
TEST(Equality, OverTheBatchASequenceShares) {
  for (const char* name :
       {"qwen3moe-q4_k", "olmoe-f32", "odd-tied-q4_0", "qwen2moe-f16", "deepseek2-lite-f16",
        "deepseek2-v3-mla-f16", "gpt-oss-f16", "llama4-f16"}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto vocabulary = static_cast<size_t>(model->spec.vocabulary);
    auto ranks = LocalRanks::start(*model, {.ranks = 2, .threads = 2});
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    std::vector<std::vector<int32_t>> tokens;
    std::vector<Logits> alone;
    for (size_t s = 0; s < 3; s++) {
      tokens.push_back(one.reference[s].tokens);
      auto got = (*ranks)->forward(tokens.back(), 0, static_cast<int32_t>(10 * s));
      ASSERT_TRUE(got.ok());
      alone.push_back(*got);
    }
    // Round 1: all prompts but their last token in one step; round 2: the last tokens together.
    Step step;
    step.block_tables = {{41, 7}, {13, 40}, {5, 39}};
    for (int32_t s = 2; s >= 0; s--) {
      const auto& ids = tokens[static_cast<size_t>(s)];
      for (size_t p = 0; p + 1 < ids.size(); p++) {
        step.columns.push_back({.token = ids[p],
                                .sequence = s,
                                .position = static_cast<int64_t>(p),
                                .wants_logits = 0});
      }
    }
    ASSERT_TRUE((*ranks)->runner().run(step).ok());
    step.columns.clear();
    for (int32_t s = 0; s < 3; s++) {
      const auto& ids = tokens[static_cast<size_t>(s)];
      step.columns.push_back({.token = ids.back(),
                              .sequence = s,
                              .position = static_cast<int64_t>(ids.size()) - 1,
                              .wants_logits = 1});
    }
    auto together = (*ranks)->runner().run(step);
    ASSERT_TRUE(together.ok());
    for (size_t s = 0; s < 3; s++) {
      EXPECT_EQ(std::memcmp(together->logits.data() + s * vocabulary, alone[s].last().data(),
                            vocabulary * sizeof(float)),
                0)
          << "sequence " << s;
    }
  }
}

// The comparator and the engine notice a wrong key: with one KV block swapped the bits differ.
TEST(Equality, ComparatorSeesAWrongBlock) {
  const GoldenCase one = golden_case("qwen3moe-q4_k");
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok());
  auto ranks = LocalRanks::start(*model, {.ranks = 2});
  ASSERT_TRUE(ranks.ok());
  const auto& tokens = one.reference[2].tokens;
  const std::vector<int32_t> most(tokens.begin(), tokens.end() - 1);
  ASSERT_TRUE((*ranks)->forward(most, 0, 0).ok());
  auto right = (*ranks)->forward({tokens.back()}, 0, 0, static_cast<int64_t>(most.size()));
  ASSERT_TRUE(right.ok());
  auto wrong = (*ranks)->forward({tokens.back()}, 0, 1, static_cast<int64_t>(most.size()));
  ASSERT_TRUE(wrong.ok());
  EXPECT_FALSE(same_bits(right->last(), wrong->last()));
}

}  // namespace
}  // namespace engine
