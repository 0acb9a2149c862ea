// Families that differ from the plain ones in more than sizes: shared experts, selection biases,
// groups, scales, a latent.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using model::Attention;
using model::Model;
using model::QkNorm;
using model::RopeStyle;
using model::RouterScore;

Model load(const GgufFile& file) {
  auto result = load_image(file);
  CHECK(result.ok(), result.error().message);
  return std::move(*result);
}

std::string error_of(const GgufFile& file) {
  const auto result = load_image(file);
  return result.ok() ? "no error" : result.error().message;
}

void expect_error(const GgufFile& file, const std::string& text) {
  EXPECT_NE(error_of(file).find(text), std::string::npos) << error_of(file);
}

TEST(Families, Qwen2NeedsItsBiases) {
  const Model dense = load(tiny_model("qwen2"));
  EXPECT_EQ(dense.blocks[1].k_bias->name, "blk.1.attn_k.bias");
  EXPECT_EQ(dense.spec.blocks[0].attention.rope.style, RopeStyle::kHalves);
  const Model experts = load(tiny_model("qwen2moe"));
  const model::Experts& numbers = *experts.spec.blocks[0].experts;
  EXPECT_EQ(numbers.shared_width, 32);
  EXPECT_TRUE(numbers.weighs_shared);
  EXPECT_FALSE(numbers.normalise_weights);
  EXPECT_EQ(experts.blocks[0].shared_router->name, "blk.0.ffn_gate_inp_shexp.weight");
}

TEST(Families, Qwen2moeTakesTheSharedWidthFromTheDenseOne) {
  GgufFile file = tiny_model("qwen2moe");
  file.erase("qwen2moe.expert_shared_feed_forward_length");
  expect_error(file,
               "'blk.0.ffn_gate_shexp.weight' has shape [32, 32], not [32, 48] as the width of the "
               "shared experts (48) says");
  file.set("qwen2moe.feed_forward_length", u32(32));
  EXPECT_EQ(load(file).spec.blocks[1].experts->shared_width, 32);
}

TEST(Families, Dots1) {
  const Model model = load(tiny_model("dots1"));
  EXPECT_FALSE(model.spec.blocks[0].experts.has_value());
  EXPECT_EQ(model.spec.blocks[0].dense_width, 48);
  const model::Experts& experts = *model.spec.blocks[1].experts;
  EXPECT_EQ(experts.score, RouterScore::kSigmoid);
  EXPECT_TRUE(experts.normalise_weights);
  EXPECT_EQ(experts.shared_width, 32);
  EXPECT_FALSE(experts.weighs_shared);
  EXPECT_EQ(model.spec.blocks[1].attention.qk_norm, QkNorm::kPerHead);
  EXPECT_EQ(model.blocks[1].selection_bias->name, "blk.1.exp_probs_b.bias");
  EXPECT_EQ(model.blocks[1].shared_router, nullptr);
}

TEST(Families, ErnieMayHaveExpertsInEverySecondLayer) {
  GgufFile file = tiny_model("ernie4_5-moe");
  EXPECT_EQ(load(file).spec.blocks[1].experts->score, RouterScore::kSoftmax);
  EXPECT_EQ(load(file).spec.blocks[1].attention.rope.style, RopeStyle::kInterleaved);
  file.set("ernie4_5-moe.leading_dense_block_count", u32(0));
  expect_error(file, "tensor 'blk.0.ffn_down_exps.weight' is missing");
  file.set("ernie4_5-moe.interleave_moe_layer_step", u32(2));
  EXPECT_FALSE(load(file).spec.blocks[0].experts.has_value());
  EXPECT_TRUE(load(file).spec.blocks[1].experts.has_value());
}

TEST(Families, GraniteHasScales) {
  GgufFile file = tiny_model("granitemoe");
  EXPECT_EQ(load(file).spec.embedding_scale, 1);
  file.set("granitemoe.embedding_scale", f32(12));
  file.set("granitemoe.residual_scale", f32(0.25F));
  file.set("granitemoe.logit_scale", f32(8));
  file.set("granitemoe.attention.scale", f32(0.5F));
  const Model model = load(file);
  EXPECT_EQ(model.spec.embedding_scale, 12);
  EXPECT_EQ(model.spec.residual_scale, 0.25F);
  EXPECT_EQ(model.spec.logit_scale, 0.125F);
  EXPECT_EQ(model.spec.blocks[0].attention.scale, 0.5F);
  file.set("granitemoe.residual_scale", f32(0));
  EXPECT_EQ(load(file).spec.residual_scale, 1);
}

// The layers behind the last that counts are known, and not used.
TEST(Families, Glm4moeSkipsLayersThatPredictFurtherTokens) {
  GgufFile file = tiny_model("glm4moe");
  EXPECT_EQ(load(file).blocks[1].ffn_norm->name, "blk.1.post_attention_norm.weight");
  EXPECT_EQ(load(file).spec.blocks[1].experts->score, RouterScore::kSigmoid);
  file.set("glm4moe.block_count", u32(3));
  file.set("glm4moe.nextn_predict_layers", u32(1));
  file.add_f32("blk.2.nextn.eh_proj.weight", {64, 32});
  EXPECT_EQ(load(file).spec.blocks.size(), 2U);
  file.set("glm4moe.nextn_predict_layers", u32(3));
  expect_error(file, "'glm4moe.nextn_predict_layers' is 3, not between 0 and 2");
}

TEST(Families, QkNormsOfGlm4moeMayBeMissing) {
  GgufFile file = tiny_model("glm4moe");
  EXPECT_EQ(load(file).spec.blocks[1].attention.qk_norm, QkNorm::kPerHead);
  for (const std::string block : {"blk.0.", "blk.1."}) {
    file.erase_tensor(block + "attn_q_norm.weight");
    file.erase_tensor(block + "attn_k_norm.weight");
  }
  EXPECT_EQ(load(file).spec.blocks[1].attention.qk_norm, QkNorm::kNone);
}

TEST(Families, Deepseek2CachesALatent) {
  for (const std::string name : {"deepseek2", "deepseek2-joint"}) {
    const Model model = load(tiny_model(name));
    const Attention& attention = model.spec.blocks[1].attention;
    ASSERT_TRUE(attention.latent.has_value());
    EXPECT_EQ(attention.latent->query_rank, 16);
    EXPECT_EQ(attention.latent->rank, 24);
    EXPECT_EQ(attention.latent->plain_dim, 6);
    EXPECT_EQ(attention.heads, 4);
    EXPECT_EQ(attention.kv_heads, 1);
    EXPECT_EQ(attention.head_dim, 28);
    EXPECT_EQ(attention.value_dim, 24);
    EXPECT_EQ(attention.query_dim(), 10);
    EXPECT_EQ(attention.output_dim(), 8);
    EXPECT_EQ(attention.scale, static_cast<float>(1 / std::sqrt(10.0)));
    EXPECT_EQ(attention.rope.dims, 4);
    EXPECT_EQ(attention.rope.style, RopeStyle::kInterleaved);
    EXPECT_EQ(model.blocks[1].kv_up != nullptr, name == "deepseek2-joint");
    EXPECT_EQ(model.blocks[1].k_up != nullptr, name == "deepseek2");
    const model::Experts& experts = *model.spec.blocks[1].experts;
    EXPECT_EQ(experts.groups, 2);
    EXPECT_EQ(experts.groups_used, 1);
    EXPECT_EQ(experts.score, RouterScore::kSoftmax);
  }
}

TEST(Families, Deepseek2WithoutAQueryRank) {
  GgufFile file = tiny_model("deepseek2-joint");
  file.erase("deepseek2.attention.q_lora_rank");
  expect_error(file, "tensor 'blk.0.attn_q.weight' is missing");
  for (const std::string block : {"blk.0.", "blk.1."}) {
    file.erase_tensor(block + "attn_q_a.weight");
    file.erase_tensor(block + "attn_q_a_norm.weight");
    file.erase_tensor(block + "attn_q_b.weight");
    file.add_f32(block + "attn_q.weight", {32, 40});
  }
  EXPECT_EQ(load(file).spec.blocks[0].attention.latent->query_rank, 0);
  EXPECT_EQ(load(file).blocks[0].q_down, nullptr);
}

// Some converters write the projections both ways.
TEST(Families, Deepseek2MayHoldProjectionsTwice) {
  GgufFile file = tiny_model("deepseek2");
  file.add_f32("blk.0.attn_kv_b.weight", {24, 56});
  file.add_f32("blk.1.attn_kv_b.weight", {24, 56});
  const Model model = load(file);
  EXPECT_NE(model.blocks[0].k_up, nullptr);
  EXPECT_EQ(model.blocks[0].kv_up, nullptr);
}

// YaRN's stretch widens the scores of a latent and leaves cos and sin alone.
TEST(Families, Deepseek2ReadsTheYarnMultiplier) {
  GgufFile file = tiny_model("deepseek2");
  const auto attention = [&] { return load(file).spec.blocks[0].attention; };
  EXPECT_EQ(attention().latent->score_log, 0);
  EXPECT_EQ(attention().rope.magnitude_log, 0.1);
  file.set("deepseek2.rope.scaling.type", text("yarn"));
  file.set("deepseek2.rope.scaling.factor", f32(40));
  EXPECT_EQ(attention().rope.magnitude_log, 0.1);
  file.set("deepseek2.rope.scaling.yarn_log_multiplier", f32(0.0625F));
  EXPECT_EQ(attention().latent->score_log, 0.0625);
  EXPECT_EQ(attention().rope.magnitude_log, 0);
}

}  // namespace
}  // namespace model_test
