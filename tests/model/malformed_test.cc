// Files that lie: each must give one sentence that names the field, and never a crash.
//
// Run under the address sanitizer too; there the same tests also show that nothing is read or
// written out of bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>

#include "base/cat.h"
#include "tests/model/damage.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using base::cat;

constexpr uint64_t kHuge = ~uint64_t{0};

/// Changes only what the header says of a tensor's shape.
std::function<void(GgufFile&)> claim_shape(const std::string& name,
                                           const std::vector<uint64_t>& shape) {
  return [=](GgufFile& file) { file.tensor(name).shape = shape; };
}

std::function<void(GgufFile&)> claim_type(const std::string& name, uint32_t type) {
  return [=](GgufFile& file) { file.tensor(name).type = type; };
}

/// Where the data of the first tensor starts.
uint64_t data_start(const Image& image) {
  const auto it =
      std::ranges::find(image.boundaries, "padding before token_embd.weight", &Boundary::after);
  CHECK(it != image.boundaries.end(), "no token_embd.weight");
  return it->offset;
}

std::function<void(GgufFile&)> claim_offset(const std::string& name, uint64_t offset) {
  return [=](GgufFile& file) { file.tensor(name).offset = offset; };
}

std::vector<Case> head_cases() {
  return {
      {"magic", [](GgufFile& f) { f.magic = "GGML"; }, "is not a GGUF file: it starts with 'GGML'"},
      {"magic_unprintable", [](GgufFile& f) { f.magic = "\x01\x02\x03\x04"; },
       "it starts with '\?\?\?\?'"},
      {"version_0", [](GgufFile& f) { f.version = 0; }, "version 0; this program reads 2 and 3"},
      {"version_1", [](GgufFile& f) { f.version = 1; }, "version 1; this program reads 2 and 3"},
      {"version_4", [](GgufFile& f) { f.version = 4; }, "version 4; this program reads 2 and 3"},
      {"big_endian", [](GgufFile& f) { f.version = 0x03000000; }, "big-endian GGUF file"},
      {"huge_tensor_count", [](GgufFile& f) { f.claimed_tensors = kHuge; },
       "the number of tensors is 18446744073709551615"},
      {"huge_key_count", [](GgufFile& f) { f.claimed_keys = kHuge; },
       "the number of metadata keys is 18446744073709551615"},
      {"one_tensor_too_many", [](GgufFile& f) { f.claimed_tensors = f.tensors.size() + 1; },
       "tensor"},
      {"one_key_too_many", [](GgufFile& f) { f.claimed_keys = f.keys.size() + 1; },
       "the name of tensor 0 has a length of 11258999068426240 bytes"},
  };
}

std::vector<Case> metadata_cases() {
  const std::string tokens = "tokenizer.ggml.tokens";
  return {
      {"empty_key", set("", u8(1)), "the name of metadata key 17 is empty"},
      {"key_twice", [](GgufFile& f) { f.keys.push_back(f.keys[0]); },
       "metadata key 'general.architecture' occurs twice"},
      {"long_key", set(std::string(5000, 'k'), u8(1)),
       "name of metadata key 17 has a length of 5000 bytes"},
      {"unknown_value_type", set("odd", RawValue{13, Bytes(8)}),
       "value of metadata key 'odd' has the unknown value type 13"},
      {"huge_value_type", set("odd", RawValue{0xffffffff, Bytes(8)}),
       "value of metadata key 'odd' has the unknown value type 4294967295"},
      {"unknown_element_type", set("odd", forged_array(99, 1, Bytes(8))),
       "value of metadata key 'odd' has elements of unknown type 99"},
      {"array_of_arrays", set("odd", forged_array(9, 1, Bytes(24))),
       "value of metadata key 'odd' is an array of arrays"},
      {"huge_array", set(tokens, forged_array(8, kHuge)),
       "value of metadata key 'tokenizer.ggml.tokens'"},
      {"array_whose_bytes_overflow", set("odd", forged_array(10, uint64_t{1} << 61)),
       "value of metadata key 'odd'"},
      {"huge_string", set("odd", RawValue{8, u64(kHuge).bytes}),
       "value of metadata key 'odd' has a length of 18446744073709551615 bytes"},
      {"string_longer_than_the_file", set("odd", RawValue{8, u64(1 << 20).bytes}),
       "before the end of the value of metadata key 'odd'"},
      {"boolean_of_2", set("odd", RawValue{7, u8(2).bytes}),
       "value of metadata key 'odd' holds 2, not a boolean"},
      {"array_entry_beyond_63_bits", set("odd", array({u64(1), u64(kHuge)})),
       "value of metadata key 'odd' holds 18446744073709551615, which is out of range"},
  };
}

std::vector<Case> tensor_cases() {
  const std::string q = "blk.1.attn_q.weight";
  const std::string embedding = "token_embd.weight";
  return {
      {"empty_tensor_name", [](GgufFile& f) { f.tensors[3].name = ""; },
       "the name of tensor 3 is empty"},
      {"tensor_twice", [](GgufFile& f) { f.tensors[4].name = f.tensors[3].name; },
       "tensor 'blk.0.attn_norm.weight' occurs twice"},
      {"no_dimensions", claim_shape(q, {}), "tensor 'blk.1.attn_q.weight' has 0 dimensions"},
      {"five_dimensions", claim_shape(q, {1, 1, 1, 1, 1}), "has 5 dimensions, not 1 to 4"},
      {"length_0", claim_shape(q, {32, 0}), "'blk.1.attn_q.weight' has length 0 in dimension 1"},
      {"huge_length", claim_shape(q, {kHuge, 1}), "has length 18446744073709551615 in dimension 0"},
      {"shape_that_overflows", claim_shape(q, {uint64_t{1} << 32, uint64_t{1} << 32}),
       "'blk.1.attn_q.weight' has a shape whose size overflows"},
      {"bytes_that_overflow", claim_shape(q, {uint64_t{1} << 31, uint64_t{1} << 31}),
       "'blk.1.attn_q.weight' has a shape whose size overflows"},
      {"unknown_type", claim_type(q, 4),
       "tensor 'blk.1.attn_q.weight' has the unknown tensor type 4; known are F32, F16"},
      {"huge_type", claim_type(q, 0xffffffff), "has the unknown tensor type 4294967295"},
      {"rows_of_partial_blocks", claim_type(q, 12),
       "has rows of 32 weights, which are no whole blocks of Q4_K (256 weights)"},
      {"offset_beyond_the_file", claim_offset(q, 1 << 30), "'blk.1.attn_q.weight' ends at byte"},
      {"offset_that_overflows", claim_offset(q, kHuge - 31),
       "'blk.1.attn_q.weight' has an offset that overflows"},
      {"end_that_overflows",
       [=](GgufFile& f) { f.tensor(q).offset = kHuge - data_start(f.image()) - 31; },
       "'blk.1.attn_q.weight' has an offset that overflows"},
      {"unaligned_offset", claim_offset(q, 33),
       "'blk.1.attn_q.weight' has offset 33, no multiple of the alignment 32"},
      {"offset_unaligned_for_the_file",
       [=](GgufFile& f) {
         f.align(64);
         f.tensor(q).offset = 32;
       },
       "'blk.1.attn_q.weight' has offset 32, no multiple of the alignment 64"},
      {"overlap", claim_offset(q, 32), "'token_embd.weight' and 'blk.1.attn_q.weight' overlap"},
      {"same_offset", claim_offset(q, 0), "overlap"},
      {"data_cut_by_a_byte", [](GgufFile& f) { f.tensors.back().data.pop_back(); },
       "may be an incomplete download"},
      {"larger_than_the_file", claim_shape(embedding, {32, 1 << 20}),
       "'token_embd.weight' ends at byte"},
  };
}

std::vector<Case> missing_cases() {
  std::vector<Case> cases;
  for (const std::string name :
       {"token_embd.weight", "output_norm.weight", "blk.1.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.1.attn_v.weight", "blk.1.attn_output.weight",
        "blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight", "blk.0.ffn_norm.weight",
        "blk.0.ffn_gate_inp.weight", "blk.1.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
        "blk.1.ffn_down_exps.weight"}) {
    std::string label = "missing_" + name;
    std::ranges::replace(label, '.', '_');
    cases.push_back({label, erase_tensor(name), cat("tensor '", name, "' is missing")});
  }
  for (const std::string key :
       {"block_count", "embedding_length", "context_length", "attention.head_count",
        "attention.layer_norm_rms_epsilon", "expert_count", "expert_used_count"}) {
    std::string label = "missing_" + key;
    std::ranges::replace(label, '.', '_');
    cases.push_back(
        {label, erase("qwen3moe." + key), cat("metadata key 'qwen3moe.", key, "' is missing")});
  }
  cases.push_back({"missing_architecture", erase("general.architecture"),
                   "metadata key 'general.architecture' is missing"});
  cases.push_back({"missing_dense_width", erase("llama.feed_forward_length"),
                   "metadata key 'llama.feed_forward_length' is missing", "llama"});
  cases.push_back({"missing_dense_gate", erase_tensor("blk.1.ffn_gate.weight"),
                   "tensor 'blk.1.ffn_gate.weight' is missing", "qwen3"});
  return cases;
}

std::vector<Case> number_cases() {
  const std::string a = "qwen3moe.";
  return {
      {"unknown_architecture", set("general.architecture", text("gpt5")),
       "'general.architecture' is 'gpt5'; known are deepseek2, dots1, ernie4_5-moe, "
       "glm4moe, gpt-oss, granitemoe, llama, llama4, minimax-m2, olmoe, qwen2, qwen2moe, qwen3, "
       "qwen3moe"},
      {"architecture_of_another_type", set("general.architecture", u32(3)),
       "'general.architecture' is an integer, not a string"},
      {"no_layers", set(a + "block_count", u32(0)), "'qwen3moe.block_count' is 0"},
      {"huge_layer_count", set(a + "block_count", u64(kHuge)),
       "'qwen3moe.block_count' is 18446744073709551615"},
      {"more_layers_than_tensors", set(a + "block_count", u32(3)),
       "tensor 'blk.2.attn_norm.weight' is missing"},
      {"fewer_layers_than_tensors", set(a + "block_count", u32(1)),
       "tensor 'blk.1.attn_k.weight' is not part of architecture qwen3moe"},
      {"layers_as_text", set(a + "block_count", text("2")),
       "'qwen3moe.block_count' is a string, not an integer"},
      {"negative_hidden", set(a + "embedding_length", i32(-32)),
       "'qwen3moe.embedding_length' is -32"},
      {"no_context", set(a + "context_length", u32(0)), "'qwen3moe.context_length' is 0"},
      {"no_heads", set(a + "attention.head_count", u32(0)), "'qwen3moe.attention.head_count' is 0"},
      {"negative_heads", set(a + "attention.head_count", i32(-1)),
       "'qwen3moe.attention.head_count' is -1"},
      {"negative_kv_heads", set(a + "attention.head_count_kv", i32(-1)),
       "'qwen3moe.attention.head_count_kv' is -1, not between 1 and"},
      {"kv_heads_that_do_not_divide", set(a + "attention.head_count_kv", u32(3)),
       "'qwen3moe.attention.head_count_kv' is 3 for layer 0, which does not divide 4 heads"},
      {"kv_heads_more_than_heads", set(a + "attention.head_count_kv", u32(8)),
       "'qwen3moe.attention.head_count_kv' is 8 for layer 0, which does not divide 4 heads"},
      {"heads_that_do_not_divide",
       [](GgufFile& f) {
         f.erase("qwen3moe.attention.key_length");
         f.set("qwen3moe.attention.head_count", u32(6));
       },
       "'qwen3moe.attention.head_count' is 6, which does not divide "
       "qwen3moe.embedding_length 32"},
      {"zero_key_length", set(a + "attention.key_length", u32(0)),
       "'qwen3moe.attention.key_length' is 0"},
      {"huge_value_length", set(a + "attention.value_length", u32(1 << 30)),
       "'qwen3moe.attention.value_length' is 1073741824"},
  };
}

std::vector<Case> number_cases_of_rope_and_experts() {
  const std::string a = "qwen3moe.";
  return {
      {"rope_wider_than_a_head", set(a + "rope.dimension_count", u32(10)),
       "'qwen3moe.rope.dimension_count' is 10, not between 2 and 8"},
      {"odd_rope", set(a + "rope.dimension_count", u32(5)),
       "'qwen3moe.rope.dimension_count' is 5, not an even number"},
      {"nan_epsilon", set(a + "attention.layer_norm_rms_epsilon", f32(kNan)),
       "'qwen3moe.attention.layer_norm_rms_epsilon' is nan, not finite"},
      {"zero_epsilon", set(a + "attention.layer_norm_rms_epsilon", f32(0)),
       "'qwen3moe.attention.layer_norm_rms_epsilon' is 0, not above zero"},
      {"infinite_rope_base", set(a + "rope.freq_base", f32(kInfinity)),
       "'qwen3moe.rope.freq_base' is inf, not finite"},
      {"rope_base_beyond_float", set(a + "rope.freq_base", f64(1e300)),
       "'qwen3moe.rope.freq_base' is 1e+300, more than a 32-bit float holds"},
      {"negative_rope_base", set(a + "rope.freq_base", f32(-1)),
       "'qwen3moe.rope.freq_base' is -1, not above zero"},
      {"rope_base_of_one", set(a + "rope.freq_base", f32(1)),
       "'qwen3moe.rope.freq_base' is 1, not above one"},
      {"yarn_that_shrinks",
       [=](GgufFile& f) {
         f.set(a + "rope.scaling.type", text("yarn"));
         f.set(a + "rope.scaling.factor", f32(0.5F));
       },
       "'qwen3moe.rope.scaling.factor' is 0.5, below 1 for YaRN"},
      {"nan_rope_factor", set(a + "rope.scaling.factor", f32(kNan)),
       "'qwen3moe.rope.scaling.factor' is nan, not finite"},
      {"zero_rope_factor", set(a + "rope.scaling.factor", f32(0)),
       "'qwen3moe.rope.scaling.factor' is 0, not above zero"},
      {"unknown_rope_scaling", set(a + "rope.scaling.type", text("dynamic")),
       "'qwen3moe.rope.scaling.type' is 'dynamic'; known are none, linear, yarn, longrope"},
      {"long_rope_without_context", set(a + "rope.scaling.type", text("longrope")),
       "'qwen3moe.rope.scaling.original_context_length' is missing, which LongRoPE needs"},
      {"long_rope_of_more_than_all",
       [=](GgufFile& f) {
         f.set(a + "rope.scaling.type", text("longrope"));
         f.set(a + "rope.scaling.original_context_length", u32(129));
       },
       "'qwen3moe.rope.scaling.original_context_length' is 129, above"},
      {"long_rope_without_factors",
       [=](GgufFile& f) {
         f.set(a + "rope.scaling.type", text("longrope"));
         f.set(a + "rope.scaling.original_context_length", u32(32));
         f.add_f32("rope_factors_short.weight", {4});
       },
       "rope_factors_long.weight"},
      {"nan_attention_scale", set(a + "attention.scale", f32(kNan)),
       "'qwen3moe.attention.scale' is nan, not finite"},
      {"no_experts", set(a + "expert_count", u32(0)), "'qwen3moe.expert_count' is 0"},
      {"too_many_experts", set(a + "expert_count", u32(1 << 20)),
       "'qwen3moe.expert_count' is 1048576"},
      {"no_experts_used", set(a + "expert_used_count", u32(0)),
       "'qwen3moe.expert_used_count' is 0"},
      {"more_experts_used_than_there_are", set(a + "expert_used_count", u32(5)),
       "'qwen3moe.expert_used_count' is 5 but qwen3moe.expert_count is 4"},
      {"nan_expert_scale", set(a + "expert_weights_scale", f32(kNan)),
       "'qwen3moe.expert_weights_scale' is nan, not finite"},
      {"unknown_gating", set(a + "expert_gating_func", u32(4)),
       "'qwen3moe.expert_gating_func' is 4"},
      {"sliding_window", set(a + "attention.sliding_window", u32(16)),
       "'qwen3moe.attention.sliding_window' is shorter than the context"},
      {"logit_scale", set(a + "logit_scale", f32(0.5F)),
       "'qwen3moe.logit_scale' is 0.5, which this program does not apply"},
      {"not_causal", set(a + "attention.causal", boolean(false)),
       "'qwen3moe.attention.causal' is false"},
      {"tokens_that_are_no_texts", set("tokenizer.ggml.tokens", array({u8(1)})),
       "'tokenizer.ggml.tokens' is not a list of at least one string"},
  };
}

std::vector<Case> shape_cases() {
  const std::string block = "blk.1.";
  return {
      {"embedding_width", reshape("token_embd.weight", {16, 40}),
       "'token_embd.weight' has shape [16, 40], not [32, 40]"},
      {"output_rows", reshape("output.weight", {32, 41}),
       "'output.weight' has shape [32, 41], not [32, 40]"},
      {"output_norm_length", reshape("output_norm.weight", {31}),
       "'output_norm.weight' has shape [31], not [32]"},
      {"norm_length", reshape(block + "attn_norm.weight", {64}),
       "'blk.1.attn_norm.weight' has shape [64], not [32]"},
      {"q_rows", reshape(block + "attn_q.weight", {32, 31}),
       "'blk.1.attn_q.weight' has shape [32, 31], not [32, 32] as "
       "qwen3moe.attention.head_count (4) of layer 1 says"},
      {"q_in_three_dimensions", reshape(block + "attn_q.weight", {32, 16, 2}),
       "'blk.1.attn_q.weight' has shape [32, 16, 2], not [32, 32]"},
      {"k_transposed", reshape(block + "attn_k.weight", {16, 32}),
       "'blk.1.attn_k.weight' has shape [16, 32], not [32, 16]"},
      {"v_rows", reshape(block + "attn_v.weight", {32, 8}),
       "'blk.1.attn_v.weight' has shape [32, 8], not [32, 16] as "
       "qwen3moe.attention.head_count_kv (2) of layer 1 says"},
      {"output_projection", reshape(block + "attn_output.weight", {32, 16}),
       "'blk.1.attn_output.weight' has shape [32, 16], not [32, 32]"},
      {"q_norm_length", reshape(block + "attn_q_norm.weight", {9}),
       "'blk.1.attn_q_norm.weight' has shape [9], neither [8] (one head) nor [32] (all heads)"},
      {"k_norm_of_another_kind", reshape(block + "attn_k_norm.weight", {16}),
       "'blk.1.attn_q_norm.weight' and 'blk.1.attn_k_norm.weight' disagree"},
      {"router_experts", reshape(block + "ffn_gate_inp.weight", {32, 5}),
       "'blk.1.ffn_gate_inp.weight' has shape [32, 5], not [32, 4]"},
      {"gate_experts", reshape(block + "ffn_gate_exps.weight", {32, 16, 3}),
       "'blk.1.ffn_gate_exps.weight' has shape [32, 16, 3], not [32, 16, 4]"},
      {"up_width", reshape(block + "ffn_up_exps.weight", {32, 8, 4}),
       "'blk.1.ffn_up_exps.weight' has shape [32, 8, 4], not [32, 16, 4]"},
      {"down_rows", reshape(block + "ffn_down_exps.weight", {16, 31, 4}),
       "'blk.1.ffn_down_exps.weight' has shape [16, 31, 4], not [16, 32, 4]"},
      {"dense_width", reshape(block + "ffn_up.weight", {32, 47}),
       "'blk.1.ffn_up.weight' has shape [32, 47], not [32, 48] as qwen3.feed_forward_length says",
       "qwen3"},
      {"norm_in_f16", [](GgufFile& f) { f.tensor("blk.0.ffn_norm.weight").type = 1; },
       "'blk.0.ffn_norm.weight' is F16; norm weights, biases and rope factors must be F32"},
      {"extra_tensor", [](GgufFile& f) { f.add_f32("blk.0.attn_sinks.weight", {4}); },
       "tensor 'blk.0.attn_sinks.weight' is not part of architecture qwen3moe"},
      {"extra_global_tensor", [](GgufFile& f) { f.add_f32("output.bias", {40}); },
       "tensor 'output.bias' is not part of architecture qwen3moe"},
      {"bias_length", [](GgufFile& f) { f.add_f32("blk.0.attn_q.bias", {31}); },
       "'blk.0.attn_q.bias' has shape [31], not [32]"},
      {"rope_factors_length", [](GgufFile& f) { f.add_f32("rope_freqs.weight", {8}); },
       "'rope_freqs.weight' has shape [8], not [4] as llama.rope.dimension_count says", "llama"},
      {"one_tensor_per_expert",
       [](GgufFile& f) {
         f.add_f32("blk.0.ffn_gate.0.weight", {32, 16});
       },
       "'blk.0.ffn_gate.0.weight' is not part of architecture llama", "mixtral"},
      {"qk_norm_where_there_is_none",
       [](GgufFile& f) { f.add_f32("blk.0.attn_q_norm.weight", {8}); },
       "tensor 'blk.0.attn_q_norm.weight' is not part of architecture llama", "llama"},
  };
}

class MalformedFile : public testing::TestWithParam<Case> {};

TEST_P(MalformedFile, GivesAnErrorThatNamesTheField) {
  expect_refused(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Head, MalformedFile, testing::ValuesIn(head_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Metadata, MalformedFile, testing::ValuesIn(metadata_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Tensors, MalformedFile, testing::ValuesIn(tensor_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Missing, MalformedFile, testing::ValuesIn(missing_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Numbers, MalformedFile, testing::ValuesIn(number_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(RopeAndExperts, MalformedFile,
                         testing::ValuesIn(number_cases_of_rope_and_experts()), name_of);
INSTANTIATE_TEST_SUITE_P(Shapes, MalformedFile, testing::ValuesIn(shape_cases()), name_of);

TEST(TruncatedFile, GivesAnErrorAtAndAroundEveryBoundary) {
  const Image image = tiny_model("qwen3moe").image();
  for (const Boundary& boundary : image.boundaries) {
    for (const ptrdiff_t shift : {-1, 0, 1}) {
      const auto length = static_cast<ptrdiff_t>(boundary.offset) + shift;
      if (length >= static_cast<ptrdiff_t>(image.bytes.size())) continue;
      // A copy of exactly that length, so that the sanitizer sees a read past it.
      const Bytes cut(image.bytes.begin(), image.bytes.begin() + length);
      const auto result = load_image(cut);
      ASSERT_FALSE(result.ok()) << "cut to " << length << ", near the end of " << boundary.after;
      EXPECT_EQ(result.error().code, base::Code::kBrokenFile) << result.error().message;
      EXPECT_TRUE(result.error().message.starts_with("image.gguf: the ") ||
                  result.error().message.starts_with("image.gguf: tensor '"))
          << result.error().message;
    }
  }
  EXPECT_TRUE(load_image(image.bytes).ok());
}

TEST(TruncatedFile, NamesTheFieldThatIsCut) {
  const Image image = tiny_model("qwen3moe").image();
  const auto cut_at = [&](const std::string& what) {
    const auto it = std::ranges::find(image.boundaries, what, &Boundary::after);
    EXPECT_NE(it, image.boundaries.end()) << what;
    const auto result = load_image(
        Bytes(image.bytes.begin(), image.bytes.begin() + static_cast<ptrdiff_t>(it->offset) - 1));
    return result.ok() ? "no error" : result.error().message;
  };
  EXPECT_NE(cut_at("magic").find("the end of the magic"), std::string::npos);
  EXPECT_NE(cut_at("version").find("the end of the version"), std::string::npos);
  EXPECT_NE(cut_at("tensor count").find("number of tensors"), std::string::npos);
  EXPECT_NE(cut_at("key count").find("number of metadata keys"), std::string::npos);
  EXPECT_NE(cut_at("value of tokenizer.ggml.tokens")
                .find("the end of the value of metadata key 'tokenizer.ggml.tokens'"),
            std::string::npos);
  EXPECT_NE(cut_at("shape of blk.1.ffn_up_exps.weight")
                .find("the end of the tensor 'blk.1.ffn_up_exps.weight'"),
            std::string::npos);
  EXPECT_NE(cut_at("data of blk.1.ffn_down_exps.weight")
                .find("tensor 'blk.1.ffn_down_exps.weight' ends at byte"),
            std::string::npos);
}

// Random damage: what a reader that trusts one field too many would trip over.
TEST(MutatedFile, NeverCrashes) {
  const Image image = tiny_model("mixtral").image();
  const uint64_t header_bytes = data_start(image);
  std::mt19937_64 random(20240607);
  const auto below = [&](uint64_t bound) { return random() % bound; };
  int refused = 0;
  const int rounds = std::getenv("NUMOE_FULL") != nullptr ? 20 * 6000 : 6000;
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = image.bytes;
    const uint64_t changes = 1 + below(3);
    for (uint64_t i = 0; i < changes; ++i) {
      constexpr uint8_t kValues[] = {0, 1, 2, 0x7f, 0x80, 0xff};
      const uint64_t at = below(header_bytes);
      const uint64_t kind = below(8);
      bytes[at] = kind < 6 ? std::byte{kValues[kind]} : std::byte{uint8_t(below(256))};
    }
    const auto result = load_image(bytes);
    if (result.ok()) continue;
    ++refused;
    ASSERT_TRUE(result.error().message.starts_with("image.gguf: ")) << result.error().message;
  }
  // Damage to names of tokens and the like goes unseen, damage to structure does not.
  EXPECT_GT(refused, rounds / 2);
}

}  // namespace
}  // namespace model_test
