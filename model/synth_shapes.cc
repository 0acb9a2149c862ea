#include "model/synth_shapes.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/check.h"

namespace model {

namespace {

using base::cat;

// Published widths. OLMoE may also be written as a `llama` with experts, for engines that do not
// know `olmoe`: the same work but for the norms of queries and keys.
constexpr SynthShape kPresets[] = {
    {.preset = "olmoe-1b-7b",
     .title = "OLMoE-1B-7B shape, synthetic weights",
     .architectures = {"olmoe", "llama"},
     .layers = 16,
     .hidden = 2048,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 128,
     .experts = 64,
     .experts_used = 8,
     .expert_width = 1024,
     .vocabulary = 50304,
     .context = 4096},
    {.preset = "qwen3-30b-a3b",
     .title = "Qwen3-30B-A3B shape, synthetic weights",
     .architectures = {"qwen3moe"},
     .layers = 48,
     .hidden = 2048,
     .heads = 32,
     .kv_heads = 4,
     .head_dim = 128,
     .experts = 128,
     .experts_used = 8,
     .expert_width = 768,
     .dense_width = 6144,
     .vocabulary = 151936,
     .context = 40960,
     .rope_base = 1000000,
     .norm_epsilon = 1e-6},
};

// Hidden states begin with deviation 1 and every product keeps it: matrices have 1/sqrt(row
// length). What a layer adds is smaller by sqrt(2 layers), as GPT-2 was initialised, so the
// residual stays near 1 and keeps telling tokens apart over any number of layers.
constexpr double kEmbeddingDeviation = 1;
// The deviation of logits, and of router scores: experts differ, none is chosen by most tokens.
constexpr double kHeadGain = 3;
constexpr double kRouterGain = 1.5;
// silu(gate) * up has about 0.6 of the deviation of its factors.
constexpr double kDownGain = 1 / 0.6;

class SynthBuilder {
 public:
  SynthBuilder(const SynthShape& shape, std::string_view architecture)
      : shape_(shape), architecture_(architecture) {}

  const SynthShape& shape() const { return shape_; }
  SynthModel take() { return std::move(model_); }

  void key(std::string_view suffix, Value value) {
    model_.metadata.set(cat(architecture_, '.', suffix), std::move(value));
  }

  /// Common numbers, embedding, last norm and head. First step.
  void start() {
    model_.metadata.set("general.architecture", std::string(architecture_));
    model_.metadata.set("general.name", std::string(shape_.title));
    key("block_count", shape_.layers);
    key("context_length", shape_.context);
    key("embedding_length", shape_.hidden);
    key("attention.head_count", shape_.heads);
    key("attention.head_count_kv", shape_.kv_heads);
    key("attention.layer_norm_rms_epsilon", rounded(shape_.norm_epsilon));
    key("rope.freq_base", rounded(shape_.rope_base));
    key("vocab_size", shape_.vocabulary);
    add({.name = "token_embd.weight",
         .shape = {shape_.hidden, shape_.vocabulary},
         .role = SynthRole::kEmbedding,
         .deviation = kEmbeddingDeviation});
    norm("output_norm.weight", shape_.hidden);
    add({.name = "output.weight",
         .shape = {shape_.hidden, shape_.vocabulary},
         .role = SynthRole::kHead,
         .deviation = kHeadGain / root(shape_.hidden)});
  }

  void attention(int64_t layer) {
    const int64_t q_rows = shape_.heads * shape_.head_dim;
    const int64_t kv_rows = shape_.kv_heads * shape_.head_dim;
    norm(in_layer(layer, "attn_norm.weight"), shape_.hidden);
    matrix(in_layer(layer, "attn_q.weight"), {shape_.hidden, q_rows}, 1);
    matrix(in_layer(layer, "attn_k.weight"), {shape_.hidden, kv_rows}, 1);
    matrix(in_layer(layer, "attn_v.weight"), {shape_.hidden, kv_rows}, 1);
    matrix(in_layer(layer, "attn_output.weight"), {q_rows, shape_.hidden}, residual_gain());
  }

  void qk_norm(int64_t layer, int64_t q_length, int64_t k_length) {
    norm(in_layer(layer, "attn_q_norm.weight"), q_length);
    norm(in_layer(layer, "attn_k_norm.weight"), k_length);
  }

  /// The numbers of the experts; once.
  void expert_keys() {
    key("expert_count", shape_.experts);
    key("expert_used_count", shape_.experts_used);
  }

  void expert_feed_forward(int64_t layer) {
    const std::vector<int64_t> inner = {shape_.hidden, shape_.expert_width, shape_.experts};
    const std::vector<int64_t> outer = {shape_.expert_width, shape_.hidden, shape_.experts};
    norm(in_layer(layer, "ffn_norm.weight"), shape_.hidden);
    add({.name = in_layer(layer, "ffn_gate_inp.weight"),
         .shape = {shape_.hidden, shape_.experts},
         .role = SynthRole::kRouter,
         .deviation = kRouterGain / root(shape_.hidden)});
    matrix(in_layer(layer, "ffn_gate_exps.weight"), inner, 1);
    matrix(in_layer(layer, "ffn_up_exps.weight"), inner, 1);
    matrix(in_layer(layer, "ffn_down_exps.weight"), outer, kDownGain * residual_gain());
  }

 private:
  static double root(int64_t number) { return std::sqrt(static_cast<double>(number)); }
  /// As a 32-bit float, which is what files hold.
  static double rounded(double value) { return static_cast<float>(value); }
  static std::string in_layer(int64_t layer, std::string_view name) {
    return cat("blk.", layer, '.', name);
  }
  double residual_gain() const { return 1 / root(2 * shape_.layers); }

  void add(SynthTensor tensor) { model_.tensors.push_back(std::move(tensor)); }
  void norm(std::string name, int64_t length) {
    add({.name = std::move(name), .shape = {length}, .role = SynthRole::kNorm, .deviation = 0});
  }
  void matrix(std::string name, std::vector<int64_t> shape, double gain) {
    const double deviation = gain / root(shape[0]);
    const SynthRole role = shape.size() > 2 ? SynthRole::kExperts : SynthRole::kMatrix;
    add({.name = std::move(name), .shape = std::move(shape), .role = role, .deviation = deviation});
  }

  const SynthShape shape_;
  const std::string_view architecture_;
  SynthModel model_;
};

void describe_olmoe(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys();
  builder.key("feed_forward_length", shape.expert_width);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qk_norm(layer, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    builder.expert_feed_forward(layer);
  }
}

void describe_llama(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys();
  builder.key("feed_forward_length", shape.expert_width);
  builder.key("rope.dimension_count", shape.head_dim);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.expert_feed_forward(layer);
  }
}

void describe_qwen3moe(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys();
  builder.key("feed_forward_length", shape.dense_width);
  builder.key("expert_feed_forward_length", shape.expert_width);
  builder.key("attention.key_length", shape.head_dim);
  builder.key("attention.value_length", shape.head_dim);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qk_norm(layer, shape.head_dim, shape.head_dim);
    builder.expert_feed_forward(layer);
  }
}

struct SynthArchitecture {
  std::string_view name;
  void (*describe)(SynthBuilder&);
};
constexpr SynthArchitecture kArchitectures[] = {
    {"llama", describe_llama},
    {"olmoe", describe_olmoe},
    {"qwen3moe", describe_qwen3moe},
};

}  // namespace

std::span<const SynthShape> synth_presets() {
  return kPresets;
}

const SynthShape* find_synth_preset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &SynthShape::preset);
  return found == std::end(kPresets) ? nullptr : found;
}

base::Result<SynthModel> describe_synth(const SynthShape& shape, std::string_view architecture) {
  if (architecture.empty()) architecture = shape.architectures[0];
  if (std::ranges::find(shape.architectures, architecture) == shape.architectures.end()) {
    std::string known;
    for (const std::string_view name : shape.architectures)
      if (!name.empty()) known += cat(known.empty() ? "" : ", ", name);
    return base::Error{base::Code::kInvalidArgument,
                       cat(shape.preset, " cannot be written as architecture '", architecture,
                           "'; it can be written as ", known)};
  }
  const auto* found = std::ranges::find(kArchitectures, architecture, &SynthArchitecture::name);
  CHECK(found != std::end(kArchitectures), "no description of ", architecture);
  SynthBuilder builder(shape, architecture);
  found->describe(builder);
  return builder.take();
}

}  // namespace model
