// Keys and values in q8_0 through the engine: equal bits in every setting, near to exact ones, and
// right at the edges of blocks and at the end of the context for heads that are no whole groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "model/synth.h"
#include "model/tokenizer.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"
#include "tests/model/gguf_builder.h"
#include "worker/leader.h"

namespace engine {
namespace {

constexpr auto kQ8_0 = kernels::KvType::kQ8_0;

bool same_bits(const Logits& a, const Logits& b) {
  if (a.positions.size() != b.positions.size()) return false;
  for (size_t p = 0; p < a.positions.size(); p++) {
    const size_t bytes = a.positions[p].size() * sizeof(float);
    if (a.positions[p].size() != b.positions[p].size()) return false;
    if (std::memcmp(a.positions[p].data(), b.positions[p].data(), bytes) != 0) return false;
  }
  return true;
}

/// Of all logits: root of the mean square of the difference, over that of the first.
double relative_difference(const Logits& exact, const Logits& other) {
  double squares = 0, all = 0;
  for (size_t p = 0; p < exact.positions.size(); p++) {
    for (size_t i = 0; i < exact.positions[p].size(); i++) {
      const double a = exact.positions[p][i], b = other.positions[p][i];
      squares += (a - b) * (a - b);
      all += a * a;
    }
  }
  return std::sqrt(squares / all);
}

model::Model loaded(const std::string& path) {
  auto model = model::load_model(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return std::move(*model);
}

Logits run(const model::Model& model, const LocalRanksOptions& options,
           const std::vector<int32_t>& tokens, int chunk = 0, int32_t first_block = 0) {
  auto ranks = LocalRanks::start(model, options);
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  if (!ranks.ok()) return {};
  auto got = (*ranks)->forward(tokens, chunk, first_block);
  EXPECT_TRUE(got.ok()) << got.error().message;
  return got.ok() ? std::move(*got) : Logits{};
}

/// One that this CPU has, else the best here.
std::string isa_or_auto(const char* name) {
  return kernels::find_ops(name).ok() ? name : "auto";
}

/// Settings that must not matter.
struct Setting {
  LocalRanksOptions options;
  int chunk = 0;
  int32_t first_block = 0;
};
std::vector<Setting> settings(const model::Model& model) {
  std::vector<Setting> all = {
      {{.ranks = 1, .isa = isa_or_auto("avx2"), .kv_type = kQ8_0}, 1, 7},
      {{.ranks = 2, .threads = 2, .isa = isa_or_auto("avx512vl"), .kv_type = kQ8_0}, 16, 0},
      {{.ranks = 3, .isa = isa_or_auto("avx512vnni"), .kv_type = kQ8_0}, 33, 21},
      {{.ranks = 2, .kv_type = kQ8_0, .exchange = "zmq"}, 64, 3},
      {{.ranks = 2, .kv_type = kQ8_0, .strategy = plan::Strategy::kLayers}, 5, 0}};
  const bool has_experts = std::any_of(model.spec.blocks.begin(), model.spec.blocks.end(),
                                       [](const auto& block) { return block.experts.has_value(); });
  if (has_experts)
    all.push_back(
        {{.ranks = 2, .threads = 2, .kv_type = kQ8_0, .strategy = plan::Strategy::kExperts}, 0, 1});
  return all;
}

// Grouped heads, a norm over all heads, latents, windows with sinks, chunked attention.
TEST(KvQ8_0, GivesTheSameBitsInEverySetting) {
  size_t compared = 0;
  for (const char* name : {"qwen3moe-q4_k", "olmoe-f32", "odd-tied-q4_0", "deepseek2-lite-f16",
                           "deepseek2-v3-mla-f16", "gpt-oss-f16", "llama4-f16"}) {
    const GoldenCase one = golden_case(name);
    const model::Model model = loaded(one.path);
    const auto& tokens = one.reference.back().tokens;
    const Logits expected = run(model, {.isa = "scalar", .kv_type = kQ8_0}, tokens);
    for (const Setting& setting : settings(model)) {
      SCOPED_TRACE(base::cat(name, ", ", setting.options.ranks, " ranks, ", setting.options.isa,
                             ", chunk ", setting.chunk));
      EXPECT_TRUE(same_bits(run(model, setting.options, tokens, setting.chunk, setting.first_block),
                            expected));
      compared++;
    }
    // It is another cache than f16's, so the comparison can fail.
    EXPECT_FALSE(same_bits(run(model, {.kv_type = kernels::KvType::kF16}, tokens), expected));
  }
  EXPECT_GE(compared, 35u);
}

// A sequence among others, in odd blocks, against itself alone.
TEST(KvQ8_0, GivesTheSameBitsInABatch) {
  const GoldenCase one = golden_case("qwen3moe-q4_k");
  const model::Model model = loaded(one.path);
  auto ranks = LocalRanks::start(model, {.ranks = 2, .threads = 2, .kv_type = kQ8_0});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  Step step;
  step.block_tables = {{41, 7}, {13, 40}, {5, 39}};
  std::vector<std::vector<float>> alone;
  for (int32_t s = 0; s < 3; s++) {
    const auto& tokens = one.reference[static_cast<size_t>(s)].tokens;
    auto got = (*ranks)->forward(tokens, 0, 10 * s);
    ASSERT_TRUE(got.ok());
    alone.push_back(got->last());
    for (size_t p = 0; p < tokens.size(); p++)
      step.columns.push_back({.token = tokens[p],
                              .sequence = s,
                              .position = static_cast<int64_t>(p),
                              .wants_logits = p + 1 == tokens.size()});
  }
  auto together = (*ranks)->runner().run(step);
  ASSERT_TRUE(together.ok()) << together.error().message;
  for (size_t s = 0; s < 3; s++) {
    const float* row = together->logits.data() + s * alone[s].size();
    EXPECT_EQ(std::memcmp(row, alone[s].data(), alone[s].size() * sizeof(float)), 0) << s;
  }
}

// The models' other roundings are the same, so this is what q8_0 adds. Its step is max / 127 of a
// group, so an element is off by at most 0.4 % of the largest; random weights, as these models
// have, make several times that of it.
TEST(KvQ8_0, IsNearToExactKeysAndValues) {
  for (const char* name : {"qwen3moe-f16", "mixtral-f16", "deepseek2-lite-f16",
                           "deepseek2-v3-mla-f16", "gpt-oss-f16", "qwen3-tied-f16"}) {
    const GoldenCase one = golden_case(name);
    const model::Model model = loaded(one.path);
    const auto& tokens = one.reference.back().tokens;
    const Logits exact = run(model, {.kv_type = kernels::KvType::kF32}, tokens);
    const double half =
        relative_difference(exact, run(model, {.kv_type = kernels::KvType::kF16}, tokens));
    const double eight = relative_difference(exact, run(model, {.kv_type = kQ8_0}, tokens));
    const double reference = relative_difference(
        run(model, {.isa = "reference", .kv_type = kernels::KvType::kF32}, tokens),
        run(model, {.isa = "reference", .kv_type = kQ8_0}, tokens));
    std::cout << name << ": f16 " << half << ", q8_0 " << eight << ", reference " << reference
              << "\n";
    EXPECT_LE(eight, 0.05) << name;
    EXPECT_LE(reference, 0.05) << name;
    EXPECT_GT(reference, 0) << name;
    EXPECT_GT(eight, half);
  }
}

// Perplexity of a text it was not trained on: what is left of a difference in logits.
TEST(KvQ8_0, PredictsATextAsWellAsHalves) {
  const model::Model model = loaded(demo_model_path());
  base::NullLog log;
  auto tokenizer = model::Tokenizer::create(model.directory->metadata, &log);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto source = std::filesystem::path(demo_model_path()).parent_path().parent_path();
  std::ifstream file(source / "tests/golden/heldout.txt");
  std::stringstream text;
  text << file.rdbuf();
  std::vector<int32_t> ids = tokenizer->encode(text.str().substr(0, 8000), {});
  ASSERT_GT(ids.size(), 1000u);
  ids.resize(1000);
  const auto loss = [&](kernels::KvType type) {
    const Logits got = run(model, {.kv_type = type, .context = 1024}, ids);
    double sum = 0;
    for (size_t p = 0; p + 1 < ids.size(); p++) {
      const auto& row = got.positions[p];
      const double top = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (const float logit : row) total += std::exp(static_cast<double>(logit) - top);
      sum += std::log(total) + top - static_cast<double>(row[static_cast<size_t>(ids[p + 1])]);
    }
    return sum / static_cast<double>(ids.size() - 1);
  };
  const double halves = loss(kernels::KvType::kF16), eight = loss(kQ8_0);
  std::cout << "perplexity with f16 " << std::exp(halves) << ", with q8_0 " << std::exp(eight)
            << "\n";
  EXPECT_NEAR(eight, halves, 0.002);
  EXPECT_NE(eight, halves);
}

/// A model of two layers with heads of any size, as architecture llama.
model::Model model_with_heads(int64_t head_dim, const std::string& path) {
  const model::SynthShape shape = {.preset = "tiny-heads",
                                   .title = "tiny",
                                   .architectures = {"llama"},
                                   .layers = 2,
                                   .hidden = 4 * head_dim,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = head_dim,
                                   .experts = 8,
                                   .experts_used = 2,
                                   .expert_width = 256,
                                   .vocabulary = 512,
                                   .context = 192};
  const auto vocabulary = model::read_directory(golden_case("llama4-f16").path);
  EXPECT_TRUE(vocabulary.ok());
  const auto plan = model::plan_synth(shape, {.weight_type = "q8_0"}, vocabulary->metadata);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_TRUE(model::write_synth(*plan, path, {}).ok());
  return loaded(path);
}

constexpr int64_t kContext = 192;  // three blocks, and the pool has no more

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; i++) tokens.push_back(i * 31 % 256);
  return tokens;
}

TEST(KvQ8_0, TakesHeadsThatAreNoWholeGroups) {
  for (const int64_t head_dim : {40, 72, 96}) {
    SCOPED_TRACE(head_dim);
    const model_test::TemporaryFolder folder;
    const model::Model model = model_with_heads(head_dim, folder.file("model.gguf"));
    const std::vector<int32_t> all = some_tokens(kContext);
    const auto options = [&](kernels::KvType type, const char* isa) {
      return LocalRanksOptions{.isa = isa, .kv_type = type, .context = kContext, .kv_blocks = 3};
    };
    const Logits exact = run(model, options(kernels::KvType::kF32, "auto"), all);
    const Logits whole = run(model, options(kQ8_0, "auto"), all);
    ASSERT_EQ(whole.positions.size(), size_t{kContext});
    EXPECT_LE(relative_difference(exact, whole), 0.02);
    EXPECT_TRUE(same_bits(run(model, options(kQ8_0, "scalar"), all), whole));
    // Ends at, before and behind the edge of a block, the rest token by token up to the last
    // position of the context.
    LocalRanksOptions two = options(kQ8_0, "auto");
    two.ranks = 2;
    auto ranks = LocalRanks::start(model, two);
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    for (const int64_t begin : {1, 63, 64, 65, 127, 128, 129, 190}) {
      SCOPED_TRACE(begin);
      ASSERT_TRUE((*ranks)->forward({all.begin(), all.begin() + begin}).ok());
      const int64_t end = begin < 128 ? begin + 3 : kContext;
      auto rest = (*ranks)->forward({all.begin() + begin, all.begin() + end}, 1, 0, begin);
      ASSERT_TRUE(rest.ok()) << rest.error().message;
      Logits expected;
      expected.positions.assign(whole.positions.begin() + begin, whole.positions.begin() + end);
      EXPECT_TRUE(same_bits(*rest, expected));
    }
  }
}

// A request that is not told when to stop fills its context to the last position and says so.
TEST(KvQ8_0, EndsWithTheContext) {
  const model_test::TemporaryFolder folder;
  const model::Model model = model_with_heads(40, folder.file("model.gguf"));
  auto ranks =
      LocalRanks::start(model, {.ranks = 2, .kv_type = kQ8_0, .context = kContext, .kv_blocks = 3});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;
  worker::Leader leader((*ranks)->runner(),
                        {.token_count = static_cast<int32_t>(model.spec.vocabulary)});
  const std::vector<int32_t> prompt = some_tokens(60);
  leader.on_generate(
      {.request_id = 1, .prompt = prompt, .sampling = {.temperature = 0}, .max_tokens = 0}, "", 0);
  std::vector<int32_t> tokens;
  proto::Finish finish = proto::Finish::kNone;
  while (leader.has_work()) {
    ASSERT_TRUE(leader.tick(0).ok());
    for (const worker::Traced& sent : leader.take_outbox()) {
      const auto* chunk = std::get_if<proto::TokenChunk>(&sent.body);
      if (chunk == nullptr) continue;
      tokens.insert(tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
      if (chunk->finish != proto::Finish::kNone) finish = chunk->finish;
    }
  }
  EXPECT_EQ(finish, proto::Finish::kLength);
  // The last token is computed from a full context and not stored itself.
  EXPECT_GE(static_cast<int64_t>(prompt.size() + tokens.size()), kContext);
  EXPECT_LE(static_cast<int64_t>(prompt.size() + tokens.size()), kContext + 1);
}

}  // namespace
}  // namespace engine
