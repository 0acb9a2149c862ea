#include "model/synth_shapes.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
#include "model/synth_builder.h"

namespace model {

namespace {

void describe_olmoe(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys();
  builder.key("feed_forward_length", shape.expert_width);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qk_norm(layer, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    builder.feed_forward(layer);
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
    builder.feed_forward(layer);
  }
}

void describe_qwen3moe(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys_with_widths();
  builder.head_keys();
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qk_norm(layer, shape.head_dim, shape.head_dim);
    builder.feed_forward(layer);
  }
}

void describe_deepseek2(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  const SynthLatent& latent = shape.latent;
  builder.start();
  builder.expert_keys_with_widths();
  builder.router_keys();
  if (latent.query_rank > 0) builder.key("attention.q_lora_rank", latent.query_rank);
  builder.key("attention.kv_lora_rank", latent.rank);
  builder.key("attention.key_length", shape.head_dim);
  builder.key("attention.value_length", latent.rank);
  builder.key("attention.key_length_mla", latent.plain_dim + shape.rope_dims);
  builder.key("attention.value_length_mla", latent.value_dim);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.latent_attention(layer);
    builder.feed_forward(layer);
  }
}

void describe_glm4moe(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys_with_widths();
  builder.router_keys();
  builder.head_keys();
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qkv_bias(layer);
    if (shape.norms_heads) builder.qk_norm(layer, shape.head_dim, shape.head_dim);
    builder.feed_forward(layer, "post_attention_norm.weight");
  }
}

void describe_minimax_m2(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys_with_widths();
  builder.router_keys();
  builder.head_keys();
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qk_norm(layer, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    builder.feed_forward(layer);
  }
}

void describe_gpt_oss(SynthBuilder& builder) {
  const SynthShape& shape = builder.shape();
  builder.start();
  builder.expert_keys_with_widths();
  builder.head_keys();
  builder.key("attention.sliding_window", shape.window);
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    builder.attention(layer);
    builder.qkv_bias(layer);
    builder.feed_forward(layer, "post_attention_norm.weight");
    builder.further_biases(layer);
  }
}

struct SynthArchitecture {
  std::string_view name;
  void (*describe)(SynthBuilder&);
};
constexpr SynthArchitecture kArchitectures[] = {
    {"deepseek2", describe_deepseek2},   {"glm4moe", describe_glm4moe},
    {"gpt-oss", describe_gpt_oss},       {"llama", describe_llama},
    {"minimax-m2", describe_minimax_m2}, {"olmoe", describe_olmoe},
    {"qwen3moe", describe_qwen3moe},
};

}  // namespace

base::Result<SynthModel> describe_synth(const SynthShape& shape, std::string_view architecture) {
  if (architecture.empty()) architecture = shape.architectures[0];
  if (std::ranges::find(shape.architectures, architecture) == shape.architectures.end()) {
    std::string known;
    for (const std::string_view name : shape.architectures)
      if (!name.empty()) known += base::cat(known.empty() ? "" : ", ", name);
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(shape.preset, " cannot be written as architecture '", architecture,
                                 "'; it can be written as ", known)};
  }
  const auto* found = std::ranges::find(kArchitectures, architecture, &SynthArchitecture::name);
  CHECK(found != std::end(kArchitectures), "no description of ", architecture);
  SynthBuilder builder(shape, architecture);
  found->describe(builder);
  return builder.take();
}

}  // namespace model
