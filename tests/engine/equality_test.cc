// Promise 2 on the engine: the same bits for any strategy, any number of ranks and threads, any
// instruction set, any chunking, any batch, any KV blocks.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "base/cat.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

/// How a group is split.
struct Split {
  std::string name;
  plan::Strategy strategy = plan::Strategy::kRows;
  int ranks = 1;
  int stages = 0;
  std::vector<double> shares = {};
  bool by_use = false;  // experts that are used unevenly

  plan::SplitOptions options(const model::ModelSpec& spec) const;
};

constexpr auto kRows = plan::Strategy::kRows, kExperts = plan::Strategy::kExperts,
               kLayers = plan::Strategy::kLayers;
// The first is what the others are compared with.
const std::vector<Split> kSplits = {{"one rank"},
                                    {"rows x 2", kRows, 2},
                                    {"rows x 3", kRows, 3},
                                    {"rows x 4", kRows, 4},
                                    {"rows 2 : 5 : 1", kRows, 3, 0, {2, 5, 1}},
                                    {"layers x 2", kLayers, 2},
                                    {"layers x 3", kLayers, 3},
                                    {"layers x 4", kLayers, 4},
                                    {"layers 1 : 3", kLayers, 2, 0, {1, 3}},
                                    {"no layers on rank 0", kLayers, 2, 0, {1, 100}},
                                    {"4 ranks in 2 stages", kLayers, 4, 2},
                                    {"3 ranks in 2 stages", kLayers, 3, 2},
                                    {"2 : 5 : 1 : 1 in 2 stages", kLayers, 4, 2, {2, 5, 1, 1}},
                                    {"3 ranks in 1 stage", kLayers, 3, 1},
                                    {"experts x 2", kExperts, 2},
                                    {"experts x 3", kExperts, 3},
                                    {"experts x 4", kExperts, 4},
                                    {"experts 2 : 5 : 1", kExperts, 3, 0, {2, 5, 1}},
                                    {"experts by use", kExperts, 3, 0, {}, true}};
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

constexpr size_t kRandomPoints = 3;  // of each case

// Indices into the lists above.
enum Factor { kSplitFactor, kThreadFactor, kIsaFactor, kPromptFactor, kChunkFactor, kFactorCount };
using Point = std::array<size_t, kFactorCount>;
using Levels = std::array<size_t, kFactorCount>;

plan::SplitOptions Split::options(const model::ModelSpec& spec) const {
  plan::SplitOptions options{
      .strategy = strategy, .rank_count = ranks, .shares = shares, .stages = stages};
  for (size_t layer = 0; by_use && layer < spec.blocks.size(); layer++) {
    const auto& experts = spec.blocks[layer].experts;
    options.expert_use.emplace_back();
    for (int e = 0; experts && e < experts->count; e++)
      options.expert_use.back().push_back(e * e % 7);
  }
  return options;
}

LocalRanksOptions ranks_of(const Split& split, const model::ModelSpec& spec) {
  const plan::SplitOptions options = split.options(spec);
  return {.ranks = split.ranks,
          .strategy = options.strategy,
          .stages = options.stages,
          .shares = options.shares,
          .expert_use = options.expert_use};
}

const Split& split_named(const std::string& name) {
  for (const Split& split : kSplits) {
    if (split.name == name) return split;
  }
  ADD_FAILURE() << "no split " << name;
  return kSplits[0];
}

/// Whether this kind of split stands for another in a sample.
bool same_kind(const Split& a, const Split& b) {
  return a.strategy == b.strategy && (a.stages > 0) == (b.stages > 0);
}

/// Splits that a model can have, first the one rank. In a sample of each other kind one, of which
/// cases take different ones.
std::vector<Split> choose_splits(const model::ModelSpec& spec, size_t case_index, bool full) {
  std::vector<Split> possible;
  for (const Split& split : kSplits) {
    if (plan::split(spec, split.options(spec)).ok()) possible.push_back(split);
  }
  if (full) return possible;
  std::vector<Split> chosen = {possible[0]};
  for (const char* kind : {"rows x 2", "layers x 2", "4 ranks in 2 stages", "experts x 2"}) {
    std::vector<Split> same;
    for (const Split& split : possible) {
      if (same_kind(split, split_named(kind)) && split.name != possible[0].name)
        same.push_back(split);
    }
    // From the second on: the last case is the only one whose layers go round four ranks.
    if (!same.empty()) chosen.push_back(same[(case_index + 1) % same.size()]);  // else: no experts
  }
  return chosen;
}

// A chunk that holds the whole prompt makes the same step as no chunks.
bool is_repetition(const Point& point) {
  const int chunk = kChunks[point[kChunkFactor]];
  return chunk != 0 && static_cast<size_t>(chunk) >= kPrompts[point[kPromptFactor]];
}

// All combinations that make different steps.
std::vector<Point> full_product(const Levels& levels) {
  std::vector<Point> points = {Point{}};
  for (size_t f = 0; f < kFactorCount; f++) {
    std::vector<Point> next;
    for (const Point& point : points) {
      for (size_t level = 0; level < levels[f]; level++) {
        next.push_back(point);
        next.back()[f] = level;
      }
    }
    points = next;
  }
  std::erase_if(points, is_repetition);
  return points;
}

// All combinations of split, instruction set, prompt and chunk, with the numbers of threads in
// turn: so each of these also meets every combination of three of the others' levels, in half the
// time.
std::vector<Point> full_matrix(const Levels& levels) {
  std::vector<Point> points = full_product(levels);
  std::erase_if(points, [&](const Point& p) {
    const size_t others = p[kSplitFactor] + p[kIsaFactor] + p[kPromptFactor] + p[kChunkFactor];
    return p[kThreadFactor] != others % levels[kThreadFactor];
  });
  return points;
}

// One factor at a time from the base point, points that cover all pairs of levels, and random ones.
std::vector<Point> sample(const Levels& levels, unsigned seed) {
  std::set<Point> chosen;
  for (size_t f = 0; f < kFactorCount; f++) {
    for (size_t level = 0; level < levels[f]; level++) {
      Point point{0, 0, 0, 2, 0};
      point[f] = level;
      if (!is_repetition(point)) chosen.insert(point);
    }
  }
  std::mt19937 random(seed);
  std::vector<Point> product = full_product(levels);
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

bool is_full() {
  // The sanitizers look for other things than bits; there the sample has to do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#else
  return std::getenv("NUMOE_FULL") != nullptr;
#endif
}

/// What is compared of a case.
struct Work {
  std::vector<Split> splits;
  std::vector<Point> points;
};

Work work_of(const model::ModelSpec& spec, size_t case_index) {
  Work work{.splits = choose_splits(spec, case_index, is_full()), .points = {}};
  const Levels levels = {work.splits.size(), kThreads.size(), kIsas.size(), kPrompts.size(),
                         kChunks.size()};
  work.points = is_full() ? full_matrix(levels) : sample(levels, static_cast<unsigned>(case_index));
  return work;
}

std::string point_name(const Work& work, const Point& p) {
  return base::cat(work.splits[p[kSplitFactor]].name, ", threads ", kThreads[p[kThreadFactor]], " ",
                   kIsas[p[kIsaFactor]], " prompt ", kPrompts[p[kPromptFactor]], " chunk ",
                   kChunks[p[kChunkFactor]]);
}

class EqualityOfCase : public testing::TestWithParam<size_t> {};

TEST_P(EqualityOfCase, OverRanksThreadsIsasPromptsAndChunks) {
  const GoldenCase one = golden_case(kCases[GetParam()]);
  ASSERT_EQ(one.reference.size(), kPrompts.size());
  auto model = model::load_model(one.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Work work = work_of(model->spec, GetParam());
  // Points of one group of ranks together; the base point comes first in every prompt.
  std::map<std::array<size_t, 3>, std::vector<Point>> groups;
  for (const Point& p : work.points) {
    groups[{p[kSplitFactor], p[kThreadFactor], p[kIsaFactor]}].push_back(p);
  }
  groups[{0, 0, 0}];  // the base group always runs, and first
  std::vector<std::vector<float>> base;
  for (const auto& [key, points] : groups) {
    LocalRanksOptions options = ranks_of(work.splits[key[0]], model->spec);
    options.threads = kThreads[key[1]];
    options.isa = isa_at(key[2]);
    auto ranks = LocalRanks::start(*model, options);
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    for (size_t prompt = base.size(); prompt < kPrompts.size(); prompt++) {
      auto got = (*ranks)->forward(one.reference[prompt].tokens);
      ASSERT_TRUE(got.ok()) << got.error().message;
      base.push_back(got->last());
    }
    for (const Point& p : points) {
      SCOPED_TRACE(point_name(work, p));
      const auto& tokens = one.reference[p[kPromptFactor]].tokens;
      ASSERT_EQ(tokens.size(), kPrompts[p[kPromptFactor]]);
      auto got = (*ranks)->forward(tokens, kChunks[p[kChunkFactor]]);
      ASSERT_TRUE(got.ok()) << got.error().message;
      ASSERT_TRUE(same_bits(got->last(), base[p[kPromptFactor]]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EqualityOfCase, testing::Range(size_t{0}, kCases.size()),
                         [](const testing::TestParamInfo<size_t>& info) {
                           std::string name = kCases[info.param];
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// What the cases above compare together.
TEST(Equality, HasEverySplitAndManyPoints) {
  size_t points = 0;
  std::set<std::string> taken;
  std::set<std::array<size_t, 3>> pairs;  // threads, another factor, its level
  for (size_t i = 0; i < kCases.size(); i++) {
    auto model = model::load_model(golden_case(kCases[i]).path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const Work work = work_of(model->spec, i);
    points += work.points.size();
    for (const Point& p : work.points) {
      taken.insert(work.splits[p[kSplitFactor]].name);
      for (size_t f = kIsaFactor; f < kFactorCount; f++) {
        pairs.insert({p[kThreadFactor], f, p[f]});
      }
    }
  }
  std::cout << points << " points" << (is_full() ? " (full matrix)\n" : "\n");
  EXPECT_GE(points, is_full() ? 10000u : 1000u);
  EXPECT_EQ(taken.size(), kSplits.size()) << "a split that no case had";
  EXPECT_EQ(pairs.size(), kThreads.size() * (kIsas.size() + kPrompts.size() + kChunks.size()));
}

// The demo model has six layers and sixteen experts; each split in few ways.
TEST(Equality, OfTheDemoModelOverAllStrategies) {
  auto model = model::load_model(demo_model_path());
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; i++) {
    tokens.push_back(static_cast<int32_t>((i * 7919 + 11) % model->spec.vocabulary));
  }
  std::vector<float> base;
  for (const Split& split : kSplits) {
    SCOPED_TRACE(split.name);
    LocalRanksOptions options = ranks_of(split, model->spec);
    options.threads = split.ranks == 3 ? 2 : 1;
    auto ranks = LocalRanks::start(*model, options);
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    auto at_once = (*ranks)->forward(tokens);
    ASSERT_TRUE(at_once.ok()) << at_once.error().message;
    if (base.empty()) base = at_once->last();
    ASSERT_TRUE(same_bits(at_once->last(), base));
    // Most in two chunks, the rest as decode.
    const auto most = tokens.begin() + 34;
    ASSERT_TRUE((*ranks)->forward({tokens.begin(), most}, 20, 5).ok());
    auto rest = (*ranks)->forward({most, tokens.end()}, 1, 5, 34);
    ASSERT_TRUE(rest.ok());
    ASSERT_TRUE(same_bits(rest->last(), base));
  }
}

// More layers than ranks: stages of many layers, all numbers of gathers that a stage may have.
TEST(Equality, OfManyLayersInStages) {
  bool complete = false;
  const auto cases = golden_cases({"deepseek2"}, &complete);
  if (!complete) GTEST_SKIP() << "the model of 27 layers is in ../shared/golden only";
  for (const GoldenCase& one : cases) {
    if (one.name != "deepseek2-lite-27l-f32") continue;
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<float> base;
    for (const Split& split : kSplits) {
      if (split.strategy != kLayers && split.ranks > 1) continue;
      SCOPED_TRACE(split.name);
      auto ranks = LocalRanks::start(*model, ranks_of(split, model->spec));
      ASSERT_TRUE(ranks.ok()) << ranks.error().message;
      for (const int chunk : {0, 1}) {
        auto got = (*ranks)->forward(one.reference[1].tokens, chunk);
        ASSERT_TRUE(got.ok()) << got.error().message;
        if (base.empty()) base = got->last();
        ASSERT_TRUE(same_bits(got->last(), base));
      }
    }
    return;
  }
  FAIL() << "no such case";
}

// Several sequences in one step, in odd KV blocks, against each alone.
TEST(Equality, OverTheBatchASequenceShares) {
  const std::pair<const char*, const char*> cases[] = {
      {"qwen3moe-q4_k", "rows x 2"},
      {"qwen3moe-q4_k", "layers x 2"},
      {"olmoe-f32", "rows x 2"},
      {"olmoe-f32", "4 ranks in 2 stages"},
      {"odd-tied-q4_0", "experts x 2"},
      {"qwen2moe-f16", "experts x 3"},
      {"deepseek2-lite-f16", "layers x 3"},
      {"deepseek2-v3-mla-f16", "rows x 2"},
      {"deepseek2-v3-mla-f16", "3 ranks in 2 stages"},
      {"gpt-oss-f16", "experts by use"},
      {"llama4-f16", "layers x 4"},
  };
  for (const auto& [name, split_name] : cases) {
    SCOPED_TRACE(std::string(name) + ", " + split_name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto vocabulary = static_cast<size_t>(model->spec.vocabulary);
    LocalRanksOptions options = ranks_of(split_named(split_name), model->spec);
    options.threads = 2;
    auto ranks = LocalRanks::start(*model, options);
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
