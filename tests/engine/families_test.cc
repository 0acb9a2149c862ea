// What other engines stumble over, for every family with experts: scores that are not numbers,
// large activations, weights that are normalised or not, more ranks than KV heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/architectures.h"
#include "model/synth.h"
#include "tests/engine/edited_files.h"
#include "tests/engine/golden.h"
#include "tests/model/tiny_synth.h"

namespace engine {
namespace {

using model_test::FileTensor;
using model_test::GgufFile;
using model_test::TemporaryFolder;

struct FamilyCase {
  std::string golden;
  std::string prefix;       // of its keys
  bool normalises = false;  // weights of experts, unless the file says otherwise
};

void PrintTo(const FamilyCase& one, std::ostream* out) {
  *out << one.golden;
}

std::vector<FamilyCase> families() {
  return {{"deepseek2-lite-f16", "deepseek2", false},
          {"deepseek2-v3-mla-f16", "deepseek2", false},
          {"dots1-f16", "dots1", true},
          {"ernie4_5-moe-f16", "ernie4_5-moe", true},
          {"glm4moe-f16", "glm4moe", true},
          {"gpt-oss-f16", "gpt-oss", false},
          {"granitemoe-f16", "granitemoe", true},
          {"llama4-f16", "llama4", false},
          {"minimax-m2-f16", "minimax-m2", true},
          {"mixtral-f16", "llama", true},
          {"qwen2moe-f16", "qwen2moe", false}};
}

class Family : public testing::TestWithParam<FamilyCase> {
 protected:
  Family() : golden(golden_case(GetParam().golden)), file(model_test::read_gguf(golden.path)) {
    widen(file);
    for (layer = 0; !file.has_tensor(name("ffn_gate_inp.weight")); layer++) CHECK(layer < 9);
  }
  /// A tensor of the first layer with experts.
  std::string name(std::string_view tensor) const { return base::cat("blk.", layer, '.', tensor); }
  FileTensor& norm() {
    const std::string usual = name("ffn_norm.weight");
    return file.tensor(file.has_tensor(usual) ? usual : name("post_attention_norm.weight"));
  }
  const std::vector<int32_t>& tokens() const { return golden.reference[1].tokens; }

  const GoldenCase golden;
  GgufFile file;  // all F32 but for MXFP4
  int layer = 0;
};

INSTANTIATE_TEST_SUITE_P(, Family, testing::ValuesIn(families()), [](const auto& info) {
  std::string name = info.param.golden;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// A router score beyond the range of float, for one token only: that column reports its layer,
// another sequence of the same step is equal to its solo run, and so is the next request.
TEST_P(Family, AnInfiniteScoreEndsOneColumn) {
  // Token 7 points all into dimension 5, which the scores of one expert weigh most.
  const auto embedding = file.tensor("token_embd.weight").floats();
  for (size_t i = 0; i < 64; i++) embedding[7 * 64 + i] = i == 5 ? 100.0F : 0.0F;
  file.tensor(name("ffn_gate_inp.weight")).floats()[5] = 6e37F;
  norm().floats()[5] = 1;
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  model_test::write_bytes(path, file.image().bytes);
  auto model = model::load_model(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const plan::Strategy strategy : {plan::Strategy::kRows, plan::Strategy::kExperts}) {
    auto ranks = LocalRanks::start(*model, {.ranks = 2, .strategy = strategy});
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    const std::vector<int32_t> good = {3, 4, 5};
    const auto alone = (*ranks)->forward(good);
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    ASSERT_EQ(alone->fault_layer, (std::vector<int32_t>{-1, -1, -1}));

    Step step;
    step.block_tables = {{5}, {6}};
    step.columns.push_back({.token = 7, .sequence = 1, .position = 0, .wants_logits = 1});
    for (int32_t p = 0; p < 3; p++) {
      step.columns.push_back({.token = good[static_cast<size_t>(p)],
                              .sequence = 0,
                              .position = p,
                              .wants_logits = p == 2});
    }
    const auto output = (*ranks)->runner().run(step);
    ASSERT_TRUE(output.ok()) << output.error().message;
    EXPECT_EQ(std::vector<int32_t>(output->fault_layer.begin(), output->fault_layer.begin() + 4),
              (std::vector<int32_t>{layer, -1, -1, -1}));
    const float* logits = output->logits.data() + alone->last().size();  // of the second that wants
    EXPECT_EQ(std::memcmp(logits, alone->last().data(), alone->last().size() * sizeof(float)), 0);
    expect_equal_logits((*ranks)->forward(good, 0, 6), alone);
  }
}

// A row of the router that is not a number, or a bias that lets one expert win only: refused before
// the first token, with the tensor's name.
TEST_P(Family, RoutersThatAreNotNumbersAreRefused) {
  const auto expect_refused = [&](const std::string& tensor, size_t begin, size_t end,
                                  float value) {
    GgufFile broken = file;
    const auto values = broken.tensor(tensor).floats();
    std::fill(values.begin() + static_cast<ptrdiff_t>(begin),
              values.begin() + static_cast<ptrdiff_t>(end), value);
    const auto got = run_file(broken, {1}, {});
    ASSERT_FALSE(got.ok()) << tensor;
    EXPECT_NE(got.error().message.find(tensor), std::string::npos) << got.error().message;
  };
  expect_refused(name("ffn_gate_inp.weight"), 64, 128, NAN);
  const std::string bias = name("exp_probs_b.bias");
  if (!file.has_tensor(bias)) return;
  expect_refused(bias, 1, file.tensor(bias).shape[0], -INFINITY);
}

// Up projections times 2^14 and down projections times 2^-14, also of dense layers and of shared
// experts: powers of two are exact, so any difference is an overflow on the way.
TEST_P(Family, LargeActivationsSurvive) {
  if (GetParam().golden == "gpt-oss-f16") GTEST_SKIP() << "its activations are clamped";
  const LocalRanksOptions by_rows{.ranks = 2};
  const LocalRanksOptions by_experts{.ranks = 2, .strategy = plan::Strategy::kExperts};
  const auto original = run_file(file, tokens(), by_rows);
  int scaled = 0;
  for (FileTensor& tensor : file.tensors) {
    const bool up = tensor.name.find(".ffn_up") != std::string::npos;
    if (!up && tensor.name.find(".ffn_down") == std::string::npos) continue;
    for (float& value : tensor.floats()) value *= up ? 0x1p14F : 0x1p-14F;
    scaled++;
  }
  EXPECT_GE(scaled, 4);
  expect_equal_logits(run_file(file, tokens(), by_rows), original);
  expect_equal_logits(run_file(file, tokens(), by_experts), original);
}

// What is cached beyond the range of half precision is clamped, never infinite: keys, or a latent.
TEST_P(Family, LargeKeysAreClamped) {
  int scaled = 0;
  for (const char* suffix : {"attn_k_norm.weight", "attn_kv_a_norm.weight", "attn_k.weight"}) {
    if (scaled != 0 || !file.has_tensor(base::cat("blk.0.", suffix))) continue;
    for (float& value : file.tensor(base::cat("blk.0.", suffix)).floats()) value *= 0x1p20F;
    scaled++;
  }
  ASSERT_EQ(scaled, 1);
  const auto got = run_file(file, tokens(), {.ranks = 2, .kv_type = kernels::KvType::kF16});
  ASSERT_TRUE(got.ok()) << got.error().message;
  for (const int32_t fault : got->fault_layer) EXPECT_EQ(fault, -1);
  for (const auto& row : got->positions) {
    for (const float logit : row) ASSERT_TRUE(std::isfinite(logit));
  }
}

/// The best tokens behind a prompt, one a step.
std::vector<int32_t> greedy(const GgufFile& file, const std::vector<int32_t>& prompt,
                            size_t count) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  model_test::write_bytes(path, file.image().bytes);
  const auto model = model::load_model(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  auto ranks = LocalRanks::start(*model, {});
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  if (!ranks.ok()) return {};
  std::vector<int32_t> given = prompt, answer;
  int64_t position = 0;
  while (answer.size() < count) {
    const auto got = (*ranks)->forward(given, 0, 0, position);
    EXPECT_TRUE(got.ok()) << got.error().message;
    if (!got.ok()) return {};
    position += std::ssize(given);
    const std::vector<float>& logits = got->last();
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    given = {static_cast<int32_t>(best)};
    answer.push_back(given[0]);
  }
  return answer;
}

// Whether weights of chosen experts are normalised: the family's way, unless the file says. A wrong
// guess shows after many tokens only, so 200 are compared.
TEST_P(Family, WeightsAreNormalisedAsTheFamilyDoesUnlessTheFileSays) {
  const std::string key = GetParam().prefix + ".expert_weights_norm";
  const std::vector<int32_t> prompt(tokens().begin(), tokens().begin() + 8);
  file.erase(key);
  const auto absent = greedy(file, prompt, 200);
  ASSERT_EQ(absent.size(), 200u);
  file.set(key, model_test::boolean(GetParam().normalises));
  EXPECT_EQ(greedy(file, prompt, 200), absent);
  file.set(key, model_test::boolean(!GetParam().normalises));
  const auto other = greedy(file, prompt, 200);
  // The softmax of the chosen adds up to one already.
  if (GetParam().golden == "gpt-oss-f16") return;
  EXPECT_NE(other, absent);
}

// Two or four KV heads, one latent, expert widths of 16: more ranks than there is anything to cut.
TEST_P(Family, MoreRanksThanKvHeadsGiveEqualBits) {
  const auto model = model::load_model(golden.path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto run = [&](int count, plan::Strategy strategy) {
    auto ranks = LocalRanks::start(*model, {.ranks = count, .strategy = strategy});
    EXPECT_TRUE(ranks.ok()) << ranks.error().message;
    return ranks.ok() ? (*ranks)->forward(tokens()) : base::Result<Logits>(base::Error{});
  };
  const auto alone = run(1, plan::Strategy::kRows);
  for (const int count : {3, 5, 6, 8}) {
    SCOPED_TRACE(count);
    expect_equal_logits(run(count, plan::Strategy::kRows), alone);
    expect_equal_logits(run(count, plan::Strategy::kExperts), alone);
  }
}

// Sixteen heads share four keys, and experts are 72 or 1408 wide: nothing divides by 3, 5 or 6.
TEST(OddWidths, AnyRankCountGivesEqualBits) {
  const auto vocabulary = model::read_directory(golden_case("llama4-f16").path);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  model::SynthShape heads = model_test::tiny_shape("glm4moe");
  heads.heads = 16;
  heads.kv_heads = 4;
  model::SynthShape latent = model_test::tiny_shape("deepseek2");
  for (model::SynthShape* shape : {&heads, &latent}) {
    for (const int64_t width : {72, 1408}) {
      SCOPED_TRACE(base::cat(shape->architectures[0], ' ', width));
      shape->expert_width = width;
      const auto plan =
          model::plan_synth(*shape, {.weight_type = "q4_k", .layers = 2}, vocabulary->metadata);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const TemporaryFolder folder;
      const std::string path = folder.file("model.gguf");
      ASSERT_TRUE(model::write_synth(*plan, path, {}).ok());
      const auto model = model::load_model(path);
      ASSERT_TRUE(model.ok()) << model.error().message;
      std::vector<int32_t> tokens;
      for (int32_t i = 0; i < 20; i++) tokens.push_back(i * 31 % 256);
      base::Result<Logits> alone = base::Error{};
      for (const int count : {1, 3, 5, 6, 8}) {
        SCOPED_TRACE(count);
        auto ranks = LocalRanks::start(*model, {.ranks = count});
        ASSERT_TRUE(ranks.ok()) << ranks.error().message;
        auto got = (*ranks)->forward(tokens, count == 3 ? 7 : 0);
        if (count == 1) {
          alone = std::move(got);
        } else {
          expect_equal_logits(got, alone);
        }
      }
    }
  }
}

}  // namespace
}  // namespace engine
