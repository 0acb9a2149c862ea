// Layers that do not reach all positions: what is outside of a window or chunk has no effect at
// all, not even by where it lies; scores that grow with the position.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"
#include "worker/batcher.h"

namespace engine {
namespace {

model::Model load(const std::string& name) {
  auto model = model::load_model(golden_case(name).path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return std::move(*model);
}

std::vector<int32_t> some_tokens(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; i++) tokens.push_back(static_cast<int32_t>(i * 37 % 251));
  return tokens;
}

/// Logits at the last of `tokens`, of a group of two ranks.
std::vector<float> last_logits(const model::Model& model, const std::vector<int32_t>& tokens,
                               int chunk = 0) {
  auto ranks = LocalRanks::start(model, {.ranks = 2, .threads = 2});
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  auto got = (*ranks)->forward(tokens, chunk);
  EXPECT_TRUE(got.ok()) << got.error().message;
  return got->last();
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> with_another_token(std::vector<int32_t> tokens, size_t at) {
  tokens[at] = (tokens[at] + 100) % 251;
  return tokens;
}

// Three layers of windows of 11: the last position sees 10 before it, those see 10 more, and so on.
TEST(Reach, WhatNoWindowReachesHasNoEffect) {
  model::Model model = load("gpt-oss-f16");
  ASSERT_EQ(model.spec.blocks.size(), 3u);
  for (model::Block& block : model.spec.blocks) {
    block.attention.reach = model::Reach::kWindow;
    block.attention.span = 11;
  }
  const std::vector<int32_t> tokens = some_tokens(100);
  const std::vector<float> expected = last_logits(model, tokens);
  for (const size_t at : {0u, 40u, 63u, 64u, 68u}) {
    EXPECT_TRUE(same_bits(last_logits(model, with_another_token(tokens, at)), expected)) << at;
  }
  for (const size_t at : {69u, 79u, 89u, 98u}) {
    EXPECT_FALSE(same_bits(last_logits(model, with_another_token(tokens, at)), expected)) << at;
  }
  for (const int chunk : {1, 7, 64}) {
    EXPECT_TRUE(same_bits(last_logits(model, tokens, chunk), expected)) << chunk;
  }
}

TEST(Reach, ChunksDoNotSeeEachOther) {
  model::Model model = load("llama4-f16");
  for (model::Block& block : model.spec.blocks) {
    block.attention.reach = model::Reach::kChunk;
    block.attention.span = 32;
  }
  const std::vector<int32_t> tokens = some_tokens(76);
  const std::vector<float> expected = last_logits(model, tokens);
  for (const size_t at : {0u, 31u, 63u}) {
    EXPECT_TRUE(same_bits(last_logits(model, with_another_token(tokens, at)), expected)) << at;
  }
  EXPECT_FALSE(same_bits(last_logits(model, with_another_token(tokens, 64)), expected));
  // A chunk of its own, at positions from 64 on, is not the text at position 0: layers turn it.
  EXPECT_TRUE(same_bits(last_logits(model, tokens, 5), expected));
}

// Blocks behind the window may belong to anybody.
TEST(Reach, BlocksOutsideAWindowAreNotRead) {
  model::Model model = load("gpt-oss-f16");
  for (model::Block& block : model.spec.blocks) {
    block.attention.reach = model::Reach::kWindow;
    block.attention.span = 16;
  }
  auto ranks = LocalRanks::start(model, {.ranks = 2});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  const std::vector<int32_t> tokens = some_tokens(150);
  const std::vector<int32_t> most(tokens.begin(), tokens.end() - 1);
  ASSERT_TRUE((*ranks)->forward(most, 64, 0).ok());
  std::vector<float> logits;
  for (const std::vector<int32_t>& table :
       {std::vector<int32_t>{0, 1, 2}, {50, 51, 2}, {0, 1, 50}}) {
    Step step;
    step.block_tables = {table};
    step.columns = {{.token = tokens.back(), .sequence = 0, .position = 149, .wants_logits = 1}};
    auto got = (*ranks)->runner().run(step);
    ASSERT_TRUE(got.ok()) << got.error().message;
    const std::vector<float> now(got->logits.begin(), got->logits.end());
    if (logits.empty()) logits = now;
    EXPECT_EQ(same_bits(now, logits), table[2] == 2);
  }
}

// Logits of every position of one sequence, as the batcher runs it.
std::vector<std::vector<float>> batched_logits(LocalRanks& ranks,
                                               const std::vector<int32_t>& tokens) {
  worker::Batcher batcher(ranks.shape());
  batcher.add({.id = 1, .tokens = tokens, .positions_max = static_cast<int64_t>(tokens.size())});
  std::vector<std::vector<float>> rows;
  const auto vocabulary = static_cast<size_t>(ranks.shape().vocabulary);
  while (const Step* step = batcher.plan()) {
    auto got = ranks.runner().run(*step);
    EXPECT_TRUE(got.ok()) << got.error().message;
    for (size_t i = 0; i < step->columns.size(); i++) {
      const float* row = got->logits.data() + i * vocabulary;
      rows.emplace_back(row, row + vocabulary);
    }
    batcher.complete();
  }
  return rows;
}

// Layers with a window keep a few blocks of their own; the layer without one keeps all.
TEST(Reach, APoolOfNearBlocksGivesTheSameBits) {
  model::Model model = load("gpt-oss-f16");
  for (const size_t layer : {0u, 2u}) {
    model.spec.blocks[layer].attention.reach = model::Reach::kWindow;
    model.spec.blocks[layer].attention.span = layer == 0 ? 16 : 100;
  }
  model.spec.blocks[1].attention.reach = model::Reach::kAll;
  const std::vector<int32_t> tokens = some_tokens(700);
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    SCOPED_TRACE(kernels::kv_type_name(type));
    LocalRanksOptions options{
        .ranks = 2, .kv_type = type, .context = 704, .columns_max = 48, .kv_blocks = 11};
    auto all = LocalRanks::start(model, options);
    ASSERT_TRUE(all.ok()) << all.error().message;
    const auto expected = batched_logits(**all, tokens);
    options.near_blocks = 4;
    options.near_span = 100;
    options.threads = 2;
    auto few = LocalRanks::start(model, options);
    ASSERT_TRUE(few.ok()) << few.error().message;
    const auto got = batched_logits(**few, tokens);
    ASSERT_EQ(got.size(), tokens.size());
    ASSERT_EQ(expected.size(), tokens.size());
    for (size_t p = 0; p < tokens.size(); p++) ASSERT_TRUE(same_bits(got[p], expected[p])) << p;
    const auto bytes = [&](KvCounts counts) {
      const auto plan = plan::split(model.spec, {});
      return kv_pool_bytes(model.spec, plan->ranks[0], type, counts);
    };
    EXPECT_EQ(bytes({.blocks = 11, .near = 4}) * 33, bytes({.blocks = 11}) * 19);
  }
}

// The last layer has no rope and a temperature. Nothing that it attends to depends on that, so at
// one position it is a scale of scores.
TEST(Reach, TemperatureScalesTheScoresOfAPosition) {
  model::Model model = load("llama4-f16");
  model::Attention& last = model.spec.blocks.back().attention;
  ASSERT_EQ(last.rope.dims, 0);
  ASSERT_TRUE(last.temperature.has_value());
  EXPECT_EQ(last.temperature->length, 8192);
  const float scale = last.scale;
  for (const size_t count : {7u, 8u, 23u, 50u}) {
    const std::vector<int32_t> tokens = some_tokens(count);
    last.scale = scale;
    last.temperature = model::Temperature{.length = 8, .log_factor = 0.5};
    const std::vector<float> got = last_logits(model, tokens);
    const double steps = std::floor(static_cast<double>(count) / 8);
    last.temperature.reset();
    const std::vector<float> without = last_logits(model, tokens);
    last.scale = scale * static_cast<float>(1 + 0.5 * std::log(steps + 1));
    const std::vector<float> expected = last_logits(model, tokens);
    double difference = 0, effect = 0;
    for (size_t i = 0; i < got.size(); i++) {
      difference = std::max(difference, std::fabs(double{got[i]} - double{expected[i]}));
      effect = std::max(effect, std::fabs(double{got[i]} - double{without[i]}));
    }
    EXPECT_LT(difference, 1e-4) << count;
    EXPECT_EQ(effect > 1e-3, count >= 8) << effect << " at " << count;
  }
}

}  // namespace
}  // namespace engine
