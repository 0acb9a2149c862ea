// Small runs that make every kind of wait meet every other, for the thread sanitizer: prefill with
// shared activations, decode, batches, a norm over all heads; ranks are threads over one mapping.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

TEST(Concurrency, PrefillDecodeAndBatchesAgree) {
  for (const char* name : {"qwen3moe-q8_0", "olmoe-f32", "llama-rope-factors-f16"}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto ranks = LocalRanks::start(*model, {.ranks = 2, .threads = 2});
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
