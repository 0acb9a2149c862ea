#include "tests/model/tiny_model.h"

#include <filesystem>

#include "base/cat.h"
#include "model/architectures.h"
#include "model/gguf.h"

namespace model_test {

namespace {

constexpr uint64_t kHidden = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
constexpr uint64_t kExperts = 4, kExpertWidth = 16, kDenseWidth = 48, kVocabulary = 40;
constexpr uint64_t kQueryRank = 16, kLatent = 24, kRotated = 4, kPlain = 6;

void add_keys(GgufFile& file, const std::string& architecture) {
  const auto set = [&](std::string_view suffix, RawValue value) {
    file.set(base::cat(architecture, '.', suffix), std::move(value));
  };
  file.set("general.architecture", text(architecture));
  file.set("general.name", text("tiny"));
  set("block_count", u32(2));
  set("context_length", u32(128));
  set("embedding_length", u32(kHidden));
  set("attention.head_count", u32(kHeads));
  set("attention.head_count_kv", u32(kKvHeads));
  set("attention.layer_norm_rms_epsilon", f32(1e-6F));
  set("attention.key_length", u32(kHeadDim));
  set("attention.value_length", u32(kHeadDim));
  set("rope.freq_base", f32(10000));
  set("rope.dimension_count", u32(kHeadDim));
  std::vector<std::string> tokens;
  for (uint64_t i = 0; i < kVocabulary; ++i) tokens.push_back(base::cat("t", i));
  file.set("tokenizer.ggml.tokens", texts(tokens));
}

void add_dense(GgufFile& file, const std::string& block) {
  file.add_f32(block + "ffn_gate.weight", {kHidden, kDenseWidth});
  file.add_f32(block + "ffn_up.weight", {kHidden, kDenseWidth});
  file.add_f32(block + "ffn_down.weight", {kDenseWidth, kHidden});
}

void add_experts(GgufFile& file, const std::string& block) {
  file.add_f32(block + "ffn_gate_inp.weight", {kHidden, kExperts});
  file.add_f32(block + "ffn_gate_exps.weight", {kHidden, kExpertWidth, kExperts});
  file.add_f32(block + "ffn_up_exps.weight", {kHidden, kExpertWidth, kExperts});
  file.add_f32(block + "ffn_down_exps.weight", {kExpertWidth, kHidden, kExperts});
}

void add_expert_biases(GgufFile& file, const std::string& block) {
  file.add_f32(block + "ffn_gate_inp.bias", {kExperts});
  file.add_f32(block + "ffn_gate_exps.bias", {kExpertWidth, kExperts});
  file.add_f32(block + "ffn_up_exps.bias", {kExpertWidth, kExperts});
  file.add_f32(block + "ffn_down_exps.bias", {kHidden, kExperts});
}

void add_shared(GgufFile& file, const std::string& block, uint64_t width) {
  file.add_f32(block + "ffn_gate_shexp.weight", {kHidden, width});
  file.add_f32(block + "ffn_up_shexp.weight", {kHidden, width});
  file.add_f32(block + "ffn_down_shexp.weight", {width, kHidden});
}

void add_attention(GgufFile& file, const std::string& block) {
  file.add_f32(block + "attn_q.weight", {kHidden, kHeads * kHeadDim});
  file.add_f32(block + "attn_k.weight", {kHidden, kKvHeads * kHeadDim});
  file.add_f32(block + "attn_v.weight", {kHidden, kKvHeads * kHeadDim});
  file.add_f32(block + "attn_output.weight", {kHeads * kHeadDim, kHidden});
}

void add_latent_attention(GgufFile& file, const std::string& block, bool joint) {
  file.add_f32(block + "attn_q_a.weight", {kHidden, kQueryRank});
  file.add_f32(block + "attn_q_a_norm.weight", {kQueryRank});
  file.add_f32(block + "attn_q_b.weight", {kQueryRank, kHeads * (kPlain + kRotated)});
  file.add_f32(block + "attn_kv_a_mqa.weight", {kHidden, kLatent + kRotated});
  file.add_f32(block + "attn_kv_a_norm.weight", {kLatent});
  if (joint) {
    file.add_f32(block + "attn_kv_b.weight", {kLatent, kHeads * (kPlain + kHeadDim)});
  } else {
    file.add_f32(block + "attn_k_b.weight", {kPlain, kLatent, kHeads});
    file.add_f32(block + "attn_v_b.weight", {kLatent, kHeadDim, kHeads});
  }
  file.add_f32(block + "attn_output.weight", {kHeads * kHeadDim, kHidden});
}

void add_latent_keys(GgufFile& file, bool joint) {
  const auto set = [&](std::string_view suffix, uint64_t value) {
    file.set(base::cat("deepseek2.", suffix), u32(static_cast<uint32_t>(value)));
  };
  set("attention.q_lora_rank", kQueryRank);
  set("attention.kv_lora_rank", kLatent);
  set("rope.dimension_count", kRotated);
  set("attention.head_count_kv", joint ? kHeads : 1);
  set("attention.key_length", joint ? kPlain + kRotated : kLatent + kRotated);
  set("attention.value_length", joint ? kHeadDim : kLatent);
  if (!joint) {
    set("attention.key_length_mla", kPlain + kRotated);
    set("attention.value_length_mla", kHeadDim);
  }
  set("expert_group_count", 2);
  set("expert_group_used_count", 1);
}

// What the file of a family looks like.
struct Family {
  bool experts = false, own_width = false, shared = false, leading_dense = false;
  bool qk_norm = false, full_norm = false, biases = false, selection_bias = false;
  bool latent = false, joint = false;
  bool sinks = false, expert_biases = false;
  std::string norm = "ffn_norm.weight";
  uint64_t shared_width = 2 * kExpertWidth;
};

Family family_of(std::string_view name) {
  if (name == "dots1") {
    return {.experts = true,
            .own_width = true,
            .shared = true,
            .leading_dense = true,
            .qk_norm = true,
            .selection_bias = true};
  }
  if (name.starts_with("deepseek2")) {
    return {.experts = true,
            .own_width = true,
            .shared = true,
            .leading_dense = true,
            .selection_bias = true,
            .latent = true,
            .joint = name == "deepseek2-joint"};
  }
  if (name == "glm4moe" || name == "minimax-m2") {
    return {.experts = true,
            .own_width = true,
            .shared = name == "glm4moe",
            .leading_dense = name == "glm4moe",
            .qk_norm = true,
            .full_norm = name == "minimax-m2",
            .selection_bias = true,
            .norm = name == "glm4moe" ? "post_attention_norm.weight" : "ffn_norm.weight"};
  }
  if (name == "gpt-oss") {
    return {.experts = true,
            .own_width = true,
            .biases = true,
            .sinks = true,
            .expert_biases = true,
            .norm = "post_attention_norm.weight"};
  }
  if (name == "llama4") {
    return {.experts = true,
            .own_width = true,
            .shared = true,
            .leading_dense = true,
            .shared_width = kExpertWidth};
  }
  if (name == "ernie4_5-moe") {
    return {.experts = true,
            .own_width = true,
            .shared = true,
            .leading_dense = true,
            .selection_bias = true};
  }
  if (name == "qwen2moe") {
    return {.experts = true, .own_width = true, .shared = true, .biases = true};
  }
  if (name == "qwen3moe") return {.experts = true, .own_width = true, .qk_norm = true};
  if (name == "olmoe") return {.experts = true, .qk_norm = true, .full_norm = true};
  return {.experts = name == "mixtral" || name == "granitemoe",
          .qk_norm = name == "qwen3",
          .biases = name == "qwen2"};
}

std::string architecture_of(std::string_view name) {
  if (name == "mixtral") return "llama";
  return name == "deepseek2-joint" ? "deepseek2" : std::string(name);
}

void add_layer(GgufFile& file, const std::string& block, const Family& family, bool dense) {
  file.add_f32(block + "attn_norm.weight", {kHidden});
  if (family.latent) {
    add_latent_attention(file, block, family.joint);
  } else {
    add_attention(file, block);
  }
  if (family.biases) {
    file.add_f32(block + "attn_q.bias", {kHeads * kHeadDim});
    file.add_f32(block + "attn_k.bias", {kKvHeads * kHeadDim});
    file.add_f32(block + "attn_v.bias", {kKvHeads * kHeadDim});
  }
  if (family.sinks) {
    file.add_f32(block + "attn_output.bias", {kHidden});
    file.add_f32(block + "attn_sinks.weight", {kHeads});
  }
  if (family.qk_norm) {
    const bool full = family.full_norm;
    file.add_f32(block + "attn_q_norm.weight", {full ? kHeads * kHeadDim : kHeadDim});
    file.add_f32(block + "attn_k_norm.weight", {full ? kKvHeads * kHeadDim : kHeadDim});
  }
  file.add_f32(block + family.norm, {kHidden});
  if (dense) return add_dense(file, block);
  add_experts(file, block);
  if (family.selection_bias) file.add_f32(block + "exp_probs_b.bias", {kExperts});
  if (family.expert_biases) add_expert_biases(file, block);
  if (family.shared) add_shared(file, block, family.shared_width);
}

}  // namespace

GgufFile tiny_model(std::string_view name) {
  const Family family = family_of(name);
  const std::string architecture = architecture_of(name);
  GgufFile file;
  add_keys(file, architecture);
  const auto set = [&](std::string_view suffix, uint64_t value) {
    file.set(base::cat(architecture, '.', suffix), u32(static_cast<uint32_t>(value)));
  };
  if (family.experts) {
    set("expert_count", kExperts);
    set("expert_used_count", 2);
  }
  set("feed_forward_length", family.experts && !family.own_width ? kExpertWidth : kDenseWidth);
  if (family.own_width) set("expert_feed_forward_length", kExpertWidth);
  if (family.latent) add_latent_keys(file, family.joint);
  // Llama 4 has experts in every second layer, and says nothing of what they share.
  if (name == "llama4") set("interleave_moe_layer_step", 2);
  if (family.leading_dense && name != "llama4") set("leading_dense_block_count", 1);
  if (family.shared && name != "qwen2moe" && name != "llama4") set("expert_shared_count", 2);
  if (name == "gpt-oss") set("attention.sliding_window", 16);
  if (name == "qwen2moe") set("expert_shared_feed_forward_length", 2 * kExpertWidth);

  file.add_f32("token_embd.weight", {kHidden, kVocabulary});
  file.add_f32("output_norm.weight", {kHidden});
  file.add_f32("output.weight", {kHidden, kVocabulary});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string block = base::cat("blk.", layer, '.');
    add_layer(file, block, family, !family.experts || (family.leading_dense && layer == 0));
    if (name == "qwen2moe") file.add_f32(block + "ffn_gate_inp_shexp.weight", {kHidden});
  }
  return file;
}

base::Result<model::Model> load_image(const Bytes& bytes) {
  model::MemoryFile file("image.gguf", bytes);
  ASSIGN_OR_RETURN(model::Directory directory, model::parse_gguf(file));
  return model::build_model(std::make_unique<const model::Directory>(std::move(directory)));
}

base::Result<model::Model> load_image(const GgufFile& file) {
  return load_image(file.image().bytes);
}

std::string golden_model(std::string_view file) {
  return base::cat(NUMOE_SOURCE_DIR, "/tests/golden/models/", file);
}

std::string full_golden_folder() {
  const std::string folder = base::cat(NUMOE_SOURCE_DIR, "/../shared/golden/models");
  return std::filesystem::is_directory(folder) ? folder : "";
}

}  // namespace model_test
