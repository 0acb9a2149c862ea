// Files of particular families that lie about what only these families have.
#include <gtest/gtest.h>

#include "tests/model/damage.h"

namespace model_test {
namespace {

std::vector<Case> deepseek_cases() {
  const std::string a = "deepseek2.", d = "deepseek2";
  return {
      {"no_latent", set(a + "attention.kv_lora_rank", u32(0)),
       "'deepseek2.attention.kv_lora_rank' is 0", d},
      {"missing_latent", erase(a + "attention.kv_lora_rank"),
       "'deepseek2.attention.kv_lora_rank' is missing", d},
      {"negative_query_rank", set(a + "attention.q_lora_rank", i32(-1)),
       "'deepseek2.attention.q_lora_rank' is -1", d},
      {"query_rank_of_another_width", set(a + "attention.q_lora_rank", u32(17)),
       "'blk.0.attn_q_a.weight' has shape [32, 16], not [32, 17] as "
       "deepseek2.attention.q_lora_rank (17) says",
       d},
      {"latent_of_another_width",
       [=](GgufFile& f) {
         f.set(a + "attention.kv_lora_rank", u32(25));
         f.set(a + "attention.key_length", u32(29));
       },
       "'blk.0.attn_kv_a_mqa.weight' has shape [32, 28], not [32, 29] as "
       "deepseek2.attention.kv_lora_rank (25) says",
       d},
      {"cached_length_that_contradicts", set(a + "attention.key_length", u32(30)),
       "'deepseek2.attention.key_length' is 30, not the 28 of attention.kv_lora_rank (24) and "
       "rope.dimension_count (4)",
       d},
      {"rope_as_wide_as_a_head", set(a + "rope.dimension_count", u32(10)),
       "'deepseek2.rope.dimension_count' is 10, not between 2 and 9", d},
      {"missing_rope_dims", erase(a + "rope.dimension_count"),
       "'deepseek2.rope.dimension_count' is missing", d},
      {"missing_head_length",
       [=](GgufFile& f) {
         f.erase(a + "attention.key_length_mla");
         f.erase(a + "attention.key_length");
       },
       "'deepseek2.attention.key_length' is missing", d},
      {"k_projection_transposed", reshape("blk.1.attn_k_b.weight", {24, 6, 4}),
       "'blk.1.attn_k_b.weight' has shape [24, 6, 4], not [6, 24, 4]", d},
      {"v_projection_of_three_heads", reshape("blk.1.attn_v_b.weight", {24, 8, 3}),
       "'blk.1.attn_v_b.weight' has shape [24, 8, 3], not [24, 8, 4]", d},
      {"joint_projection", reshape("blk.1.attn_kv_b.weight", {24, 55}),
       "'blk.1.attn_kv_b.weight' has shape [24, 55], not [24, 56]", "deepseek2-joint"},
      {"missing_joint_projection", erase_tensor("blk.1.attn_kv_b.weight"),
       "tensor 'blk.1.attn_kv_b.weight' is missing", "deepseek2-joint"},
      {"missing_v_projection", erase_tensor("blk.1.attn_v_b.weight"),
       "tensor 'blk.1.attn_v_b.weight' is missing", d},
      {"latent_norm", reshape("blk.0.attn_kv_a_norm.weight", {28}),
       "'blk.0.attn_kv_a_norm.weight' has shape [28], not [24]", d},
  };
}

std::vector<Case> deepseek_expert_cases() {
  const std::string a = "deepseek2.", d = "deepseek2";
  return {
      {"groups_that_do_not_divide", set(a + "expert_group_count", u32(3)),
       "'deepseek2.expert_group_count' is 3, which does not divide 4 experts", d},
      {"more_groups_than_experts", set(a + "expert_group_count", u32(5)),
       "'deepseek2.expert_group_count' is 5", d},
      {"missing_groups_used", erase(a + "expert_group_used_count"),
       "'deepseek2.expert_group_used_count' is missing", d},
      {"more_groups_used_than_there_are", set(a + "expert_group_used_count", u32(3)),
       "'deepseek2.expert_group_used_count' is 3", d},
      {"groups_too_small",
       [=](GgufFile& f) {
         f.set(a + "expert_group_count", u32(4));
         f.set(a + "expert_group_used_count", u32(1));
       },
       "'deepseek2.expert_group_used_count' is 1: groups of 1 experts, too few for "
       "deepseek2.expert_used_count 2",
       d},
      {"nan_yarn_multiplier", set(a + "rope.scaling.yarn_log_multiplier", f32(kNan)), "nan", d},
      {"more_dense_layers_than_layers", set(a + "leading_dense_block_count", u32(3)),
       "'deepseek2.leading_dense_block_count' is 3", d},
      {"experts_in_a_dense_layer", set(a + "leading_dense_block_count", u32(2)),
       "tensor 'blk.1.ffn_gate.weight' is missing", d},
      {"selection_bias_length", reshape("blk.1.exp_probs_b.bias", {5}),
       "'blk.1.exp_probs_b.bias' has shape [5], not [4] as deepseek2.expert_count says", d},
      {"shared_width", reshape("blk.1.ffn_up_shexp.weight", {32, 16}),
       "'blk.1.ffn_up_shexp.weight' has shape [32, 16], not [32, 32] as the width of the shared "
       "experts (32) says",
       d},
      {"huge_shared_count", set(a + "expert_shared_count", u32(1 << 24)),
       "'deepseek2.expert_shared_count' is 16777216, too many for experts of width 16", d},
      {"missing_shared_experts", erase_tensor("blk.1.ffn_gate_shexp.weight"),
       "tensor 'blk.1.ffn_gate_shexp.weight' is missing", d},
      {"shared_experts_not_said", erase(a + "expert_shared_count"),
       "'blk.1.ffn_down_shexp.weight' is not part of architecture deepseek2", d},
  };
}

std::vector<Case> reach_cases() {
  const std::string a = "gpt-oss.", g = "gpt-oss", l = "llama4";
  return {
      {"missing_window", erase(a + "attention.sliding_window"),
       "'gpt-oss.attention.sliding_window' is missing", g},
      {"negative_window", set(a + "attention.sliding_window", i32(-1)),
       "'gpt-oss.attention.sliding_window' is -1", g},
      {"window_of_nothing", set(a + "attention.sliding_window", u32(0)),
       "'gpt-oss.attention.sliding_window' is 0", g},
      {"negative_chunk", set("llama4.attention.sliding_window", i32(-8192)),
       "'llama4.attention.sliding_window' is -8192", l},
      {"pattern_of_three_layers",
       set(a + "attention.sliding_window_pattern",
           array({boolean(true), boolean(false), boolean(true)})),
       "'gpt-oss.attention.sliding_window_pattern' has 3 entries for 2 layers", g},
      {"pattern_of_numbers", set(a + "attention.sliding_window_pattern", array({u32(1), u32(2)})),
       "'gpt-oss.attention.sliding_window_pattern' is 2 for layer 1", g},
      {"negative_period", set(a + "attention.sliding_window_pattern", i32(-2)),
       "'gpt-oss.attention.sliding_window_pattern' is -2", g},
      {"nan_base_of_windows", set(a + "rope.freq_base_swa", f32(kNan)),
       "'gpt-oss.rope.freq_base_swa' is nan", g},
      {"base_of_windows_below_one", set(a + "rope.freq_base_swa", f32(1)),
       "'gpt-oss.rope.freq_base_swa' is 1, not above one", g},
      {"base_of_windows_elsewhere", set("qwen3moe.rope.freq_base_swa", f32(10)),
       "'qwen3moe.rope.freq_base_swa' is 10, which this program does not apply"},
      {"temperature_of_another_family", set("qwen3moe.attention.temperature_scale", f32(0.5F)),
       "'qwen3moe.attention.temperature_scale' is 0.5, which this program does not apply"},
      {"expert_step_of_zero_with_experts", set("llama4.interleave_moe_layer_step", u32(0)),
       "'llama4.interleave_moe_layer_step' is 0", l},
      {"odd_rope", set("llama4.rope.dimension_count", u32(3)),
       "'llama4.rope.dimension_count' is 3, not an even number", l},
  };
}

std::vector<Case> bias_cases() {
  const std::string g = "gpt-oss";
  return {
      {"missing_sinks", erase_tensor("blk.1.attn_sinks.weight"),
       "tensor 'blk.1.attn_sinks.weight' is missing", g},
      {"sinks_of_kv_heads", reshape("blk.1.attn_sinks.weight", {2}),
       "'blk.1.attn_sinks.weight' has shape [2], not [4]", g},
      {"sinks_of_another_family", [](GgufFile& f) { f.add_f32("blk.1.attn_sinks.weight", {4}); },
       "'blk.1.attn_sinks.weight' is not part of architecture qwen3moe"},
      {"missing_output_bias", erase_tensor("blk.0.attn_output.bias"),
       "tensor 'blk.0.attn_output.bias' is missing", g},
      {"missing_router_bias", erase_tensor("blk.0.ffn_gate_inp.bias"),
       "tensor 'blk.0.ffn_gate_inp.bias' is missing", g},
      {"router_bias_length", reshape("blk.0.ffn_gate_inp.bias", {5}),
       "'blk.0.ffn_gate_inp.bias' has shape [5], not [4]", g},
      {"missing_bias_of_up", erase_tensor("blk.1.ffn_up_exps.bias"),
       "tensor 'blk.1.ffn_up_exps.bias' is missing", g},
      {"bias_of_three_experts", reshape("blk.0.ffn_gate_exps.bias", {16, 3}),
       "'blk.0.ffn_gate_exps.bias' has shape [16, 3], not [16, 4]", g},
      {"bias_of_down_as_wide_as_up", reshape("blk.0.ffn_down_exps.bias", {16, 4}),
       "'blk.0.ffn_down_exps.bias' has shape [16, 4], not [32, 4]", g},
      {"half_precision_bias",
       [](GgufFile& f) {
         FileTensor& bias = f.tensor("blk.0.ffn_up_exps.bias");
         bias.type = 1;
         bias.data.resize(bias.data.size() / 2);
       },
       "tensor 'blk.0.ffn_up_exps.bias' is F16; norm weights, biases and rope factors must be F32",
       g},
      {"biases_of_another_family", [](GgufFile& f) { f.add_f32("blk.1.ffn_gate_inp.bias", {4}); },
       "'blk.1.ffn_gate_inp.bias' is not part of architecture qwen3moe"},
      {"shared_experts_of_llama4", erase_tensor("blk.1.ffn_up_shexp.weight"),
       "tensor 'blk.1.ffn_up_shexp.weight' is missing", "llama4"},
  };
}

std::vector<Case> cases_of_other_architectures() {
  return {
      {"qwen2_without_bias", erase_tensor("blk.1.attn_v.bias"),
       "tensor 'blk.1.attn_v.bias' is missing", "qwen2"},
      {"bias_length", reshape("blk.0.attn_k.bias", {32}),
       "'blk.0.attn_k.bias' has shape [32], not [16]", "qwen2moe"},
      {"shared_router", reshape("blk.0.ffn_gate_inp_shexp.weight", {31}),
       "'blk.0.ffn_gate_inp_shexp.weight' has shape [31], not [32]", "qwen2moe"},
      {"missing_shared_router", erase_tensor("blk.0.ffn_gate_inp_shexp.weight"),
       "tensor 'blk.0.ffn_gate_inp_shexp.weight' is missing", "qwen2moe"},
      {"shared_router_where_none_is",
       [](GgufFile& f) { f.add_f32("blk.1.ffn_gate_inp_shexp.weight", {32}); },
       "'blk.1.ffn_gate_inp_shexp.weight' is not part of architecture dots1", "dots1"},
      {"negative_residual_scale", set("granitemoe.residual_scale", f32(-1)),
       "'granitemoe.residual_scale' is -1, below zero", "granitemoe"},
      {"infinite_logit_scale", set("granitemoe.logit_scale", f32(kInfinity)),
       "'granitemoe.logit_scale' is inf, not finite", "granitemoe"},
      {"expert_step_of_zero", set("ernie4_5-moe.interleave_moe_layer_step", u32(0)),
       "'ernie4_5-moe.interleave_moe_layer_step' is 0", "ernie4_5-moe"},
      {"scale_of_another_family", set("dots1.embedding_scale", f32(2)),
       "'dots1.embedding_scale' is 2, which this program does not apply", "dots1"},
      {"groups_of_another_family", set("qwen3moe.expert_group_count", u32(2)),
       "'qwen3moe.expert_group_count' is 2, which this program does not apply"},
      {"yarn_multiplier_of_another_family",
       set("qwen3moe.rope.scaling.yarn_log_multiplier", f32(0.1F)),
       "which this program does not apply"},
  };
}

class MalformedFamily : public testing::TestWithParam<Case> {};

TEST_P(MalformedFamily, GivesAnErrorThatNamesTheField) {
  expect_refused(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Latent, MalformedFamily, testing::ValuesIn(deepseek_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Experts, MalformedFamily, testing::ValuesIn(deepseek_expert_cases()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Reach, MalformedFamily, testing::ValuesIn(reach_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Biases, MalformedFamily, testing::ValuesIn(bias_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Others, MalformedFamily, testing::ValuesIn(cases_of_other_architectures()),
                         name_of);

}  // namespace
}  // namespace model_test
