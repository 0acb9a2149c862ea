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

/// Names of all types that weights are written in.
inline constexpr const char* kSynthTypes[] = {
    "f32",   "f16",     "bf16",   "q8_0",  "q4_0",    "q4_1",   "q5_0",   "q5_1",
    "q2_k",  "q3_k",    "q4_k",   "q5_k",  "q6_k",    "iq4_nl", "iq4_xs", "iq1_s",
    "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",  "mxfp4"};

}  // namespace model_test
