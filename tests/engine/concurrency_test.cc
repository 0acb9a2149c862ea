// Small runs that make every kind of wait meet every other, for the thread sanitizer: prefill with
// shared activations, decode, batches, a norm over all heads, stages; ranks are threads over one
// mapping.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

TEST(Concurrency, PrefillDecodeAndBatchesAgree) {
  struct Case {
    const char* name;
    LocalRanksOptions options;
  };
  const auto layers = plan::Strategy::kLayers;
  for (const auto& [name, options] :
       {Case{"qwen3moe-q8_0", {.ranks = 2, .threads = 2}},
        Case{"olmoe-f32", {.ranks = 2, .threads = 2}},
        Case{"llama-rope-factors-f16", {.ranks = 2, .threads = 2}},
        Case{"olmoe-f32", {.ranks = 3, .threads = 2, .strategy = layers, .stages = 2}},
        Case{"deepseek2-v3-mla-f16", {.ranks = 3, .threads = 1, .strategy = layers}}}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto ranks = LocalRanks::start(*model, options);
    ASSERT_TRUE(ranks.ok()) << ranks.error().message;
    const auto& tokens = one.reference[1].tokens;
    auto at_once = (*ranks)->forward(tokens);
    auto one_by_one = (*ranks)->forward(tokens, 1, 5);
    auto in_threes = (*ranks)->forward(tokens, 3, 6);
    ASSERT_TRUE(at_once.ok() && one_by_one.ok() && in_threes.ok());
    EXPECT_EQ(at_once->last(), one_by_one->last());
    EXPECT_EQ(at_once->last(), in_threes->last());

    // Six sequences of one column each: more than a thread prepares alone.
    Step step;
    for (int32_t s = 0; s < 6; s++) {
      step.block_tables.push_back({10 + s});
      step.columns.push_back({.token = tokens[0], .sequence = s, .position = 0, .wants_logits = 1});
    }
    auto batch = (*ranks)->runner().run(step);
    ASSERT_TRUE(batch.ok());
    const auto vocabulary = static_cast<size_t>(model->spec.vocabulary);
    for (size_t s = 0; s < 6; s++) {
      EXPECT_EQ(std::memcmp(batch->logits.data() + s * vocabulary, at_once->positions[0].data(),
                            vocabulary * sizeof(float)),
                0);
    }
  }
}

}  // namespace
}  // namespace engine
