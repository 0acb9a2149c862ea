// Shapes small enough to write, read and run in a test, otherwise like the presets.
#pragma once

#include "model/synth_shapes.h"

namespace model_test {

/// Rows are whole blocks of every type.
inline constexpr model::SynthShape kTinyOlmoe = {.preset = "tiny-olmoe",
                                                 .title = "tiny",
                                                 .architectures = {"olmoe", "llama"},
                                                 .layers = 4,
                                                 .hidden = 256,
                                                 .heads = 4,
                                                 .kv_heads = 4,
                                                 .head_dim = 64,
                                                 .experts = 8,
                                                 .experts_used = 2,
                                                 .expert_width = 256,
                                                 .vocabulary = 512,
                                                 .context = 512};

/// Grouped KV heads; rows of `down` are no whole blocks of 256.
inline constexpr model::SynthShape kTinyQwen = {.preset = "tiny-qwen",
                                                .title = "tiny",
                                                .architectures = {"qwen3moe"},
                                                .layers = 4,
                                                .hidden = 256,
                                                .heads = 6,
                                                .kv_heads = 2,
                                                .head_dim = 128,
                                                .experts = 16,
                                                .experts_used = 4,
                                                .expert_width = 96,
                                                .dense_width = 512,
                                                .vocabulary = 512,
                                                .context = 512,
                                                .rope_base = 1000000,
                                                .norm_epsilon = 1e-6};

/// A dense layer, a latent with compressed queries, groups, shared experts, a stretched context.
inline constexpr model::SynthShape kTinyDeepseek = {
    .preset = "tiny-deepseek",
    .title = "tiny",
    .architectures = {"deepseek2"},
    .layers = 4,
    .hidden = 256,
    .heads = 4,
    .kv_heads = 1,
    .head_dim = 160,
    .rope_dims = 32,
    .experts = 16,
    .experts_used = 4,
    .expert_width = 96,
    .dense_width = 512,
    .shared_experts = 1,
    .leading_dense = 1,
    .vocabulary = 512,
    .context = 512,
    .router = {.sigmoid = true, .scale = 1.5, .groups = 4, .groups_used = 2},
    .latent = {.query_rank = 96, .rank = 128, .plain_dim = 32, .value_dim = 64},
    .yarn = {.factor = 4, .original_context = 128, .log_multiplier = 0.1}};

/// Half of a head turned, biases, a dense layer.
inline constexpr model::SynthShape kTinyGlm = {.preset = "tiny-glm",
                                               .title = "tiny",
                                               .architectures = {"glm4moe"},
                                               .layers = 4,
                                               .hidden = 256,
                                               .heads = 6,
                                               .kv_heads = 2,
                                               .head_dim = 64,
                                               .rope_dims = 32,
                                               .experts = 16,
                                               .experts_used = 4,
                                               .expert_width = 96,
                                               .dense_width = 512,
                                               .shared_experts = 1,
                                               .leading_dense = 1,
                                               .vocabulary = 512,
                                               .context = 512,
                                               .router = {.sigmoid = true}};

inline constexpr model::SynthShape kTinyMinimax = {.preset = "tiny-minimax",
                                                   .title = "tiny",
                                                   .architectures = {"minimax-m2"},
                                                   .layers = 4,
                                                   .hidden = 256,
                                                   .heads = 6,
                                                   .kv_heads = 2,
                                                   .head_dim = 64,
                                                   .rope_dims = 32,
                                                   .experts = 16,
                                                   .experts_used = 4,
                                                   .expert_width = 96,
                                                   .dense_width = 96,
                                                   .vocabulary = 512,
                                                   .context = 512,
                                                   .router = {.sigmoid = true}};

/// Windows shorter than a text, sinks, biases everywhere.
inline constexpr model::SynthShape kTinyGptOss = {.preset = "tiny-gpt-oss",
                                                  .title = "tiny",
                                                  .architectures = {"gpt-oss"},
                                                  .layers = 4,
                                                  .hidden = 288,
                                                  .heads = 8,
                                                  .kv_heads = 2,
                                                  .head_dim = 64,
                                                  .rope_dims = 64,
                                                  .window = 24,
                                                  .experts = 16,
                                                  .experts_used = 4,
                                                  .expert_width = 96,
                                                  .dense_width = 96,
                                                  .vocabulary = 512,
                                                  .context = 512,
                                                  .rope_base = 150000,
                                                  .yarn = {.factor = 4, .original_context = 128}};

/// One that can be written as `architecture`.
inline const model::SynthShape& tiny_shape(std::string_view architecture) {
  for (const model::SynthShape* shape :
       {&kTinyOlmoe, &kTinyQwen, &kTinyDeepseek, &kTinyGlm, &kTinyMinimax, &kTinyGptOss}) {
    for (const std::string_view name : shape->architectures) {
      if (name == architecture) return *shape;
    }
  }
  return kTinyOlmoe;
}

/// Names of all types that weights are written in.
inline constexpr const char* kSynthTypes[] = {
    "f32",   "f16",     "bf16",   "q8_0",  "q4_0",    "q4_1",   "q5_0",   "q5_1",
    "q2_k",  "q3_k",    "q4_k",   "q5_k",  "q6_k",    "iq4_nl", "iq4_xs", "iq1_s",
    "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",  "mxfp4"};

}  // namespace model_test
