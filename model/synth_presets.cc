// Published widths (config.json of each model); files of the first layers have them too.
#include <algorithm>

#include "model/synth_shapes.h"

namespace model {

namespace {

// OLMoE may also be written as a `llama` with experts, for engines that do not know `olmoe`: the
// same work but for the norms of queries and keys.
constexpr SynthShape kOlmoe = {.preset = "olmoe-1b-7b",
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
                               .context = 4096};

constexpr SynthShape kQwen3Small = {.preset = "qwen3-30b-a3b",
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
                                    .norm_epsilon = 1e-6};

constexpr SynthShape kQwen3Large = {.preset = "qwen3-235b-a22b",
                                    .title = "Qwen3-235B-A22B shape, synthetic weights",
                                    .architectures = {"qwen3moe"},
                                    .layers = 94,
                                    .hidden = 4096,
                                    .heads = 64,
                                    .kv_heads = 4,
                                    .head_dim = 128,
                                    .experts = 128,
                                    .experts_used = 8,
                                    .expert_width = 1536,
                                    .dense_width = 12288,
                                    .vocabulary = 151936,
                                    .context = 40960,
                                    .rope_base = 1000000,
                                    .norm_epsilon = 1e-6};

constexpr SynthShape kMixtral = {.preset = "mixtral-8x7b",
                                 .title = "Mixtral-8x7B shape, synthetic weights",
                                 .architectures = {"llama"},
                                 .layers = 32,
                                 .hidden = 4096,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .experts = 8,
                                 .experts_used = 2,
                                 .expert_width = 14336,
                                 .vocabulary = 32000,
                                 .context = 32768,
                                 .rope_base = 1000000};

constexpr SynthShape kDeepseekLite = {
    .preset = "deepseek-v2-lite",
    .title = "DeepSeek-V2-Lite shape, synthetic weights",
    .architectures = {"deepseek2"},
    .layers = 27,
    .hidden = 2048,
    .heads = 16,
    .kv_heads = 1,
    .head_dim = 576,
    .rope_dims = 64,
    .experts = 64,
    .experts_used = 6,
    .expert_width = 1408,
    .dense_width = 10944,
    .shared_experts = 2,
    .leading_dense = 1,
    .vocabulary = 102400,
    .context = 163840,
    .norm_epsilon = 1e-6,
    .latent = {.rank = 512, .plain_dim = 128, .value_dim = 128},
    .yarn = {.factor = 40, .original_context = 4096, .log_multiplier = 0.0707}};

constexpr SynthShape kDeepseekV3 = {
    .preset = "deepseek-v3",
    .title = "DeepSeek-V3 shape, synthetic weights",
    .architectures = {"deepseek2"},
    .layers = 61,
    .hidden = 7168,
    .heads = 128,
    .kv_heads = 1,
    .head_dim = 576,
    .rope_dims = 64,
    .experts = 256,
    .experts_used = 8,
    .expert_width = 2048,
    .dense_width = 18432,
    .shared_experts = 1,
    .leading_dense = 3,
    .vocabulary = 129280,
    .context = 163840,
    .norm_epsilon = 1e-6,
    .router = {.sigmoid = true, .scale = 2.5, .groups = 8, .groups_used = 4},
    .latent = {.query_rank = 1536, .rank = 512, .plain_dim = 128, .value_dim = 128},
    .yarn = {.factor = 40, .original_context = 4096, .log_multiplier = 0.1}};

constexpr SynthShape named(SynthShape shape, std::string_view preset, std::string_view title) {
  shape.preset = preset;
  shape.title = title;
  return shape;
}

constexpr SynthShape kKimi = {
    .preset = "kimi-k2",
    .title = "Kimi-K2 shape, synthetic weights",
    .architectures = {"deepseek2"},
    .layers = 61,
    .hidden = 7168,
    .heads = 64,
    .kv_heads = 1,
    .head_dim = 576,
    .rope_dims = 64,
    .experts = 384,
    .experts_used = 8,
    .expert_width = 2048,
    .dense_width = 18432,
    .shared_experts = 1,
    .leading_dense = 1,
    .vocabulary = 163840,
    .context = 131072,
    .rope_base = 50000,
    .norm_epsilon = 1e-6,
    .router = {.sigmoid = true, .scale = 2.827},
    .latent = {.query_rank = 1536, .rank = 512, .plain_dim = 128, .value_dim = 128},
    .yarn = {.factor = 32, .original_context = 4096, .log_multiplier = 0.1, .beta_fast = 1}};

constexpr SynthShape kGlmAir = {.preset = "glm-4.5-air",
                                .title = "GLM-4.5-Air shape, synthetic weights",
                                .architectures = {"glm4moe"},
                                .layers = 46,
                                .hidden = 4096,
                                .heads = 96,
                                .kv_heads = 8,
                                .head_dim = 128,
                                .rope_dims = 64,
                                .experts = 128,
                                .experts_used = 8,
                                .expert_width = 1408,
                                .dense_width = 10944,
                                .shared_experts = 1,
                                .leading_dense = 1,
                                .vocabulary = 151552,
                                .context = 131072,
                                .rope_base = 1000000,
                                .router = {.sigmoid = true}};

constexpr SynthShape kGlm = {.preset = "glm-4.5",
                             .title = "GLM-4.5 shape, synthetic weights",
                             .architectures = {"glm4moe"},
                             .layers = 92,
                             .hidden = 5120,
                             .heads = 96,
                             .kv_heads = 8,
                             .head_dim = 128,
                             .rope_dims = 64,
                             .norms_heads = true,
                             .experts = 160,
                             .experts_used = 8,
                             .expert_width = 1536,
                             .dense_width = 12288,
                             .shared_experts = 1,
                             .leading_dense = 3,
                             .vocabulary = 151552,
                             .context = 131072,
                             .rope_base = 1000000,
                             .router = {.sigmoid = true, .scale = 2.5}};

constexpr SynthShape kMinimax = {.preset = "minimax-m2",
                                 .title = "MiniMax-M2 shape, synthetic weights",
                                 .architectures = {"minimax-m2"},
                                 .layers = 62,
                                 .hidden = 3072,
                                 .heads = 48,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .rope_dims = 64,
                                 .experts = 256,
                                 .experts_used = 8,
                                 .expert_width = 1536,
                                 .dense_width = 1536,
                                 .vocabulary = 200064,
                                 .context = 196608,
                                 .rope_base = 5000000,
                                 .norm_epsilon = 1e-6,
                                 .router = {.sigmoid = true}};

constexpr SynthShape gpt_oss(std::string_view preset, std::string_view title, int64_t layers,
                             int64_t experts) {
  return {.preset = preset,
          .title = title,
          .architectures = {"gpt-oss"},
          .layers = layers,
          .hidden = 2880,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 64,
          .rope_dims = 64,
          .window = 128,
          .experts = experts,
          .experts_used = 4,
          .expert_width = 2880,
          .dense_width = 2880,
          .vocabulary = 201088,
          .context = 131072,
          .rope_base = 150000,
          .yarn = {.factor = 32, .original_context = 4096}};
}

constexpr SynthShape kPresets[] = {
    kOlmoe,
    kQwen3Small,
    kQwen3Large,
    kMixtral,
    kDeepseekLite,
    kDeepseekV3,
    named(kDeepseekV3, "deepseek-r1-671b", "DeepSeek-R1 shape, synthetic weights"),
    kKimi,
    gpt_oss("gpt-oss-20b", "gpt-oss-20b shape, synthetic weights", 24, 32),
    gpt_oss("gpt-oss-120b", "gpt-oss-120b shape, synthetic weights", 36, 128),
    kGlmAir,
    kGlm,
    kMinimax,
};

}  // namespace

std::span<const SynthShape> synth_presets() {
  return kPresets;
}

const SynthShape* find_synth_preset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &SynthShape::preset);
  return found == std::end(kPresets) ? nullptr : found;
}

}  // namespace model
