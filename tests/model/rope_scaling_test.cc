// How far apart positions are, as the keys of a file say.
#include <gtest/gtest.h>

#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using model::Model;
using model::RopeScaling;

Model load(const GgufFile& file) {
  auto result = load_image(file);
  CHECK(result.ok(), result.error().message);
  return std::move(*result);
}

TEST(RopeScalingKeys, AreRead) {
  GgufFile file = tiny_model("llama");
  const auto rope = [&] { return load(file).spec.blocks[1].attention.rope; };
  file.set("llama.rope.scaling.type", text("none"));
  file.set("llama.rope.scaling.factor", f32(4));
  EXPECT_EQ(rope().scaling, RopeScaling::kNone);
  EXPECT_EQ(rope().factor, 1);
  file.erase("llama.rope.scaling.type");  // a factor alone is linear
  EXPECT_EQ(rope().scaling, RopeScaling::kLinear);
  EXPECT_EQ(rope().factor, 4);
  file.set("llama.rope.scaling.type", text("linear"));
  EXPECT_EQ(rope().scaling, RopeScaling::kLinear);
  file.set("llama.rope.scaling.type", text("yarn"));
  EXPECT_EQ(rope().scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope().original_context, 128);
  EXPECT_EQ(rope().ext_factor, 1);
  EXPECT_EQ(rope().attention_factor, 1);
  EXPECT_EQ(rope().beta_fast, 32);
  EXPECT_EQ(rope().beta_slow, 1);
  file.set("llama.rope.scaling.original_context_length", u32(32));
  file.set("llama.rope.scaling.yarn_ext_factor", f32(0.5F));
  file.set("llama.rope.scaling.attn_factor", f32(2));
  file.set("llama.rope.scaling.yarn_attn_factor", f32(3));
  file.set("llama.rope.scaling.yarn_beta_fast", f32(16));
  file.set("llama.rope.scaling.yarn_beta_slow", f32(2));
  EXPECT_EQ(rope().original_context, 32);
  EXPECT_EQ(rope().ext_factor, 0.5F);
  EXPECT_EQ(rope().attention_factor, 6);
  EXPECT_EQ(rope().beta_fast, 16);
  EXPECT_EQ(rope().beta_slow, 2);
}

TEST(RopeScalingKeys, LongRopeHasFactorsForTwoLengths) {
  GgufFile file = tiny_model("llama");
  file.set("llama.rope.scaling.type", text("longrope"));
  file.set("llama.rope.scaling.factor", f32(4));
  file.set("llama.rope.scaling.original_context_length", u32(32));
  file.set("llama.rope.scaling.attn_factor", f32(1.25F));
  file.add_f32("rope_factors_short.weight", {4});
  file.add_f32("rope_factors_long.weight", {4});
  const Model model = load(file);
  const model::Rope& rope = model.spec.blocks[1].attention.rope;
  EXPECT_EQ(rope.scaling, RopeScaling::kLong);
  EXPECT_EQ(rope.factor, 1);
  EXPECT_EQ(rope.original_context, 32);
  EXPECT_EQ(rope.attention_factor, 1.25F);
  EXPECT_EQ(model.rope_factors->name, "rope_factors_short.weight");
  EXPECT_EQ(model.rope_factors_long->name, "rope_factors_long.weight");
}

TEST(RopeScalingKeys, TheOlderNameOfTheLinearFactorCounts) {
  GgufFile file = tiny_model("llama");
  file.set("llama.rope.scale_linear", f32(2));
  EXPECT_EQ(load(file).spec.blocks[0].attention.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(load(file).spec.blocks[0].attention.rope.factor, 2);
}

// Row A4: tied embeddings, and token lists of another length than the embedding.
}  // namespace
}  // namespace model_test
