#include "tests/model/tiny_model.h"

#include <filesystem>

#include "base/cat.h"
#include "model/architectures.h"
#include "model/gguf.h"

namespace model_test {

namespace {

constexpr uint64_t kHidden = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8;
constexpr uint64_t kExperts = 4, kExpertWidth = 16, kDenseWidth = 48, kVocabulary = 40;

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

void add_feed_forward(GgufFile& file, const std::string& block, bool experts) {
  file.add_f32(block + "ffn_norm.weight", {kHidden});
  if (!experts) {
    file.add_f32(block + "ffn_gate.weight", {kHidden, kDenseWidth});
    file.add_f32(block + "ffn_up.weight", {kHidden, kDenseWidth});
    file.add_f32(block + "ffn_down.weight", {kDenseWidth, kHidden});
    return;
  }
  file.add_f32(block + "ffn_gate_inp.weight", {kHidden, kExperts});
  file.add_f32(block + "ffn_gate_exps.weight", {kHidden, kExpertWidth, kExperts});
  file.add_f32(block + "ffn_up_exps.weight", {kHidden, kExpertWidth, kExperts});
  file.add_f32(block + "ffn_down_exps.weight", {kExpertWidth, kHidden, kExperts});
}

}  // namespace

GgufFile tiny_model(std::string_view name) {
  const bool experts = name == "qwen3moe" || name == "olmoe" || name == "mixtral";
  const bool qk_norm = name.starts_with("qwen3") || name == "olmoe";
  const bool full_norm = name == "olmoe";
  const std::string architecture(name == "mixtral" ? "llama" : name);
  GgufFile file;
  add_keys(file, architecture);
  if (experts) {
    file.set(architecture + ".expert_count", u32(kExperts));
    file.set(architecture + ".expert_used_count", u32(2));
  }
  const bool own_width = name == "qwen3moe";
  file.set(architecture + ".feed_forward_length",
           u32(static_cast<uint32_t>(experts && !own_width ? kExpertWidth : kDenseWidth)));
  if (own_width) file.set(architecture + ".expert_feed_forward_length", u32(kExpertWidth));

  file.add_f32("token_embd.weight", {kHidden, kVocabulary});
  file.add_f32("output_norm.weight", {kHidden});
  file.add_f32("output.weight", {kHidden, kVocabulary});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string block = base::cat("blk.", layer, '.');
    file.add_f32(block + "attn_norm.weight", {kHidden});
    file.add_f32(block + "attn_q.weight", {kHidden, kHeads * kHeadDim});
    file.add_f32(block + "attn_k.weight", {kHidden, kKvHeads * kHeadDim});
    file.add_f32(block + "attn_v.weight", {kHidden, kKvHeads * kHeadDim});
    file.add_f32(block + "attn_output.weight", {kHeads * kHeadDim, kHidden});
    if (qk_norm) {
      file.add_f32(block + "attn_q_norm.weight", {full_norm ? kHeads * kHeadDim : kHeadDim});
      file.add_f32(block + "attn_k_norm.weight", {full_norm ? kKvHeads * kHeadDim : kHeadDim});
    }
    add_feed_forward(file, block, experts);
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
