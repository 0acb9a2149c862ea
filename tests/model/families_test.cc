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
using model::Reach;
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

TEST(Families, GptOssHasWindowsInEveryOtherLayer) {
  GgufFile file = tiny_model("gpt-oss");
  const Model model = load(file);
  const model::Block& block = model.spec.blocks[0];
  EXPECT_EQ(block.attention.reach, Reach::kWindow);
  EXPECT_EQ(block.attention.span, 16);
  EXPECT_EQ(model.spec.blocks[1].attention.reach, Reach::kAll);
  EXPECT_EQ(model.blocks[1].sinks->name, "blk.1.attn_sinks.weight");
  EXPECT_EQ(model.blocks[1].ffn_norm->name, "blk.1.post_attention_norm.weight");
  EXPECT_EQ(model.blocks[1].down_bias->name, "blk.1.ffn_down_exps.bias");
  EXPECT_EQ(block.experts->score, RouterScore::kSoftmaxOfChosen);
  EXPECT_EQ(block.activation.kind, model::Activation::kClampedSwiglu);
  file.set("gpt-oss.expert_gating_func", u32(3));
  EXPECT_EQ(load(file).spec.blocks[0].experts->score, RouterScore::kSoftmaxOfChosen);
}

TEST(Families, AFileMaySayWhichLayersHaveWindows) {
  GgufFile file = tiny_model("gpt-oss");
  const auto windows = [&] {
    std::vector<bool> out;
    for (const model::Block& block : load(file).spec.blocks) {
      out.push_back(block.attention.reach == Reach::kWindow);
    }
    return out;
  };
  const std::string key = "gpt-oss.attention.sliding_window_pattern";
  EXPECT_EQ(windows(), (std::vector<bool>{true, false}));
  file.set(key, u32(1));
  EXPECT_EQ(windows(), (std::vector<bool>{false, false}));
  file.set(key, u32(0));
  EXPECT_EQ(windows(), (std::vector<bool>{true, true}));
  file.set(key, array({boolean(false), boolean(true)}));
  EXPECT_EQ(windows(), (std::vector<bool>{false, true}));
  file.set(key, array({u32(0), u32(1)}));
  EXPECT_EQ(windows(), (std::vector<bool>{false, true}));
  file.set("gpt-oss.rope.freq_base_swa", f32(500));
  EXPECT_EQ(load(file).spec.blocks[0].attention.rope.base, 10000);
  EXPECT_EQ(load(file).spec.blocks[1].attention.rope.base, 500);
}

TEST(Families, Llama4AttendsInChunksButForEveryFourthLayer) {
  GgufFile file = tiny_model("llama4");
  const Model model = load(file);
  const Attention& near = model.spec.blocks[1].attention;
  EXPECT_EQ(near.reach, Reach::kChunk);
  EXPECT_EQ(near.span, 8192);
  EXPECT_EQ(near.rope.dims, 8);
  EXPECT_EQ(near.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(near.qk_norm, QkNorm::kAfterRope);
  EXPECT_FALSE(near.temperature.has_value());
  EXPECT_FALSE(model.spec.blocks[0].experts.has_value());
  const model::Experts& experts = *model.spec.blocks[1].experts;
  EXPECT_EQ(experts.score, RouterScore::kSigmoid);
  EXPECT_TRUE(experts.weighs_input);
  EXPECT_FALSE(experts.normalise_weights);
  EXPECT_EQ(experts.shared_width, 16);

  file.set("llama4.attention.sliding_window_pattern", u32(2));
  const Attention far = load(file).spec.blocks[1].attention;
  EXPECT_EQ(far.reach, Reach::kAll);
  EXPECT_EQ(far.rope.dims, 0);
  EXPECT_EQ(far.qk_norm, QkNorm::kNone);
  ASSERT_TRUE(far.temperature.has_value());
  EXPECT_EQ(far.temperature->length, 8192);

  // A chunk of zero: no chunks, and rope everywhere.
  file.set("llama4.attention.sliding_window", u32(0));
  const Attention unbounded = load(file).spec.blocks[1].attention;
  EXPECT_EQ(unbounded.reach, Reach::kAll);
  EXPECT_EQ(unbounded.rope.dims, 8);
  EXPECT_FALSE(unbounded.temperature.has_value());
  EXPECT_EQ(unbounded.qk_norm, QkNorm::kAfterRope);
}

// Maverick was trained without the norm of turned heads; nothing but its experts' number tells.
TEST(Families, Llama4Of128ExpertsHasNoNormAfterRope) {
  GgufFile file = tiny_model("llama4");
  file.set("llama4.expert_count", u32(128));
  for (const std::string name : {"gate", "up", "down"}) {
    const std::string tensor = "blk.1.ffn_" + name + "_exps.weight";
    GgufFile other;
    const uint64_t in = name == "down" ? 16 : 32, out = name == "down" ? 32 : 16;
    file.tensor(tensor) = other.add_f32(tensor, {in, out, 128});
  }
  GgufFile other;
  file.tensor("blk.1.ffn_gate_inp.weight") = other.add_f32("blk.1.ffn_gate_inp.weight", {32, 128});
  EXPECT_EQ(load(file).spec.blocks[1].attention.qk_norm, QkNorm::kNone);
  EXPECT_EQ(load(file).spec.blocks[1].attention.reach, Reach::kChunk);
}

// A dense Llama 4 has no experts, and a step of zero.
TEST(Families, Llama4MayBeDense) {
  GgufFile file = tiny_model("llama4");
  file.set("llama4.expert_count", u32(0));
  file.set("llama4.interleave_moe_layer_step", u32(0));
  for (const std::string name : {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps",
                                 "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"}) {
    file.erase_tensor("blk.1." + name + ".weight");
  }
  file.add_f32("blk.1.ffn_gate.weight", {32, 48});
  file.add_f32("blk.1.ffn_up.weight", {32, 48});
  file.add_f32("blk.1.ffn_down.weight", {48, 32});
  EXPECT_FALSE(load(file).spec.blocks[1].experts.has_value());
}

TEST(Families, ReachesFromTheFirstPositionThatCounts) {
  Attention attention;
  EXPECT_EQ(attention.first_position(1000), 0);
  attention.span = 16;
  attention.reach = Reach::kWindow;
  EXPECT_EQ(attention.first_position(0), 0);
  EXPECT_EQ(attention.first_position(15), 0);
  EXPECT_EQ(attention.first_position(16), 1);
  EXPECT_EQ(attention.first_position(100), 85);
  attention.reach = Reach::kChunk;
  EXPECT_EQ(attention.first_position(15), 0);
  EXPECT_EQ(attention.first_position(16), 16);
  EXPECT_EQ(attention.first_position(47), 32);
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
