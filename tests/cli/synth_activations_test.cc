// What synthetic weights make of a text: logits stay numbers of the intended size over any number
// of layers, the last layer still tells tokens apart, and no expert has most of the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/rng.h"
#include "model/synth.h"
#include "tests/engine/local_ranks.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_synth.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

struct Case {
  const char *architecture, *type;
};

class SynthActivations : public testing::TestWithParam<Case> {};

TEST_P(SynthActivations, AreSaneOverManyLayers) {
  const Case& given = GetParam();
  const std::string_view architecture = given.architecture;
  SynthShape shape = model_test::tiny_shape(architecture);
  shape.layers = 24;
  const auto plan = plan_synth(shape, {.architecture = architecture, .weight_type = given.type},
                               model_test::byte_pair_vocabulary({}));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const model_test::TemporaryFolder folder;
  ASSERT_TRUE(write_synth(*plan, folder.file("model.gguf"), {}).ok());
  const auto model = load_model(folder.file("model.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto ranks = engine::LocalRanks::start(*model, {.kv_type = kernels::KvType::kF16});
  ASSERT_TRUE(ranks.ok()) << ranks.error().message;

  constexpr uint64_t kTokens = 96;
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < kTokens; i++)
    tokens.push_back(static_cast<int32_t>(base::draw_uniform({.seed = 3, .position = i}) * 256));
  const auto got = (*ranks)->forward(tokens);
  ASSERT_TRUE(got.ok()) << got.error().message;

  double squares = 0, count = 0;
  for (const auto& logits : got->positions) {
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit));
      squares += static_cast<double>(logit) * static_cast<double>(logit);
      count++;
    }
  }
  EXPECT_NEAR(std::sqrt(squares / count), 3, 0.6) << "as the head was scaled";

  for (size_t layer = 0; layer < got->experts.size(); layer++) {
    if (!model->spec.blocks[layer].experts) continue;
    std::map<int32_t, int> uses;
    std::set<std::set<int32_t>> sets;
    for (const auto& chosen : got->experts[layer]) {
      for (const int32_t expert : chosen) uses[expert]++;
      sets.insert({chosen.begin(), chosen.end()});
    }
    const double mean = static_cast<double>(kTokens * static_cast<size_t>(shape.experts_used)) /
                        static_cast<double>(shape.experts);
    EXPECT_EQ(std::ssize(uses), shape.experts) << "layer " << layer;
    for (const auto& [expert, times] : uses)
      EXPECT_LT(times, 2.5 * mean) << "expert " << expert << " of layer " << layer;
    // A hidden state that is the same for all tokens would choose the same experts for all.
    EXPECT_GT(sets.size(), 15u) << "layer " << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SynthActivations,
                         testing::Values(Case{"olmoe", "q4_k"}, Case{"llama", "q4_k"},
                                         Case{"qwen3moe", "q4_k"}, Case{"qwen3moe", "mxfp4"},
                                         Case{"olmoe", "q2_k"}, Case{"olmoe", "bf16"},
                                         Case{"deepseek2", "q8_0"}, Case{"glm4moe", "q8_0"},
                                         Case{"minimax-m2", "q8_0"}, Case{"gpt-oss", "mxfp4"}),
                         [](const auto& info) {
                           std::string name = info.param.architecture;
                           std::ranges::replace(name, '-', '_');
                           return name + "_" + info.param.type;
                         });

}  // namespace
}  // namespace model
