#include "model/architectures.h"

#include <algorithm>

#include "base/cat.h"
#include "model/architecture.h"
#include "model/model_builder.h"
#include "model/printable.h"

namespace model {
namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;

constexpr std::string_view kSharedAfterDense[] = {kSharedCount, kLeadingDense};
constexpr std::string_view kErnieKeys[] = {kSharedCount, kLeadingDense, kExpertStep};
constexpr std::string_view kGraniteKeys[] = {kSharedCount, kLogitScale, kResidualScale,
                                             kEmbeddingScale};
constexpr std::string_view kGlmKeys[] = {kSharedCount, kLeadingDense, kNextLayers};
constexpr std::string_view kSharedOnly[] = {kSharedCount};
constexpr std::string_view kLlama4Keys[] = {kSharedCount, kExpertStep};
constexpr std::string_view kDeepseekKeys[] = {kSharedCount, kLeadingDense, kGroupCount, kYarnLog};

constexpr Architecture kArchitectures[] = {
    // DeepSeek V2, V3 and R1, Kimi K2.
    {.name = "deepseek2",
     .rope = RopeStyle::kInterleaved,
     .latent_attention = true,
     .feed_forward = FeedForward::kExperts,
     .experts = {.selection_bias = Presence::kOptional},
     .applies = kDeepseekKeys},
    {.name = "dots1",
     .qk_norm = Presence::kRequired,
     .feed_forward = FeedForward::kExperts,
     .experts = {.normalise_weights = true,
                 .score = RouterScore::kSigmoid,
                 .selection_bias = Presence::kOptional},
     .applies = kSharedAfterDense},
    {.name = "ernie4_5-moe",
     .rope = RopeStyle::kInterleaved,
     .feed_forward = FeedForward::kExperts,
     .experts = {.normalise_weights = true, .selection_bias = Presence::kOptional},
     .applies = kErnieKeys},
    // GLM 4.5: the layer that predicts a further token is not used.
    {.name = "glm4moe",
     .qk_norm = Presence::kOptional,
     .feed_forward = FeedForward::kExperts,
     .ffn_norm = "post_attention_norm.weight",
     .experts = {.normalise_weights = true,
                 .score = RouterScore::kSigmoid,
                 .selection_bias = Presence::kOptional},
     .applies = kGlmKeys},
    // Trained with a sink per head, windows in every other layer, and its own activation.
    {.name = "gpt-oss",
     .qkv_bias = Presence::kRequired,
     .output_bias = Presence::kRequired,
     .sinks = Presence::kRequired,
     .reach = {.near = Reach::kWindow, .period = 2},
     .activation = {.kind = Activation::kClampedSwiglu, .alpha = 1.702F, .limit = 7},
     .feed_forward = FeedForward::kExperts,
     .ffn_norm = "post_attention_norm.weight",
     .experts = {.score = RouterScore::kSoftmaxOfChosen, .biases = Presence::kRequired}},
    {.name = "granitemoe",
     .rope = RopeStyle::kInterleaved,
     .feed_forward = FeedForward::kExperts,
     .experts = {.normalise_weights = true, .width_from_feed_forward = true},
     .applies = kGraniteKeys},
    // Llama, Mistral and, with experts, Mixtral. Their converters permute the rows of q and k so
    // that rope turns neighbouring elements.
    {.name = "llama",
     .rope = RopeStyle::kInterleaved,
     .feed_forward = FeedForward::kExpertsIfCounted,
     .experts = {.normalise_weights = true, .width_from_feed_forward = true}},
    // Llama 4 Scout and Maverick (of 128 experts, without the norm of turned heads).
    {.name = "llama4",
     .rope = RopeStyle::kInterleaved,
     .reach = {.near = Reach::kChunk,
               .period = 4,
               .span = 8192,
               .far_temperature = Temperature{.length = 8192, .log_factor = 0.1}},
     .norm_after_rope = true,
     .unnormed_at_experts = 128,
     .feed_forward = FeedForward::kExpertsIfCounted,
     .experts = {.score = RouterScore::kSigmoid, .shared_count = 1, .weighs_input = true},
     .applies = kLlama4Keys},
    {.name = "minimax-m2",
     .qk_norm = Presence::kRequired,
     .feed_forward = FeedForward::kExperts,
     .experts = {.normalise_weights = true,
                 .score = RouterScore::kSigmoid,
                 .selection_bias = Presence::kOptional}},
    // Queries and keys normed over their full width, weights used as the softmax gave them.
    {.name = "olmoe",
     .qk_norm = Presence::kRequired,
     .feed_forward = FeedForward::kExperts,
     .experts = {.width_from_feed_forward = true}},
    {.name = "qwen2", .qkv_bias = Presence::kRequired},
    {.name = "qwen2moe",
     .qkv_bias = Presence::kRequired,
     .feed_forward = FeedForward::kExperts,
     .experts = {.shared_width_from_feed_forward = true, .shared_router = Presence::kRequired},
     .applies = kSharedOnly},
    {.name = "qwen3", .qk_norm = Presence::kRequired},
    {.name = "qwen3moe",
     .qk_norm = Presence::kRequired,
     .feed_forward = FeedForward::kExperts,
     .experts = {.normalise_weights = true}},
};

Result<Model> build(std::unique_ptr<const Directory> directory) {
  ASSIGN_OR_RETURN(const std::string name, directory->metadata.string("general.architecture"));
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& a : kArchitectures) known += cat(known.empty() ? "" : ", ", a.name);
    return Error{Code::kUnsupported, cat("metadata key 'general.architecture' is '",
                                         printable(name), "'; known are ", known)};
  }
  return ModelBuilder(std::move(directory), *found).build();
}

}  // namespace

bool Architecture::has(std::string_view key) const {
  return std::ranges::find(applies, key) != applies.end();
}

Result<Model> build_model(std::unique_ptr<const Directory> directory) {
  const std::string path = directory->files.empty() ? "model" : directory->files[0].path;
  auto model = build(std::move(directory));
  if (model.ok()) return model;
  return Error{model.error().code, cat(path, ": ", model.error().message)};
}

Result<Model> load_model(const std::string& path, Extent extent) {
  ASSIGN_OR_RETURN(Directory directory, read_directory(path, extent));
  return build_model(std::make_unique<const Directory>(std::move(directory)));
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.name);
  return names;
}

}  // namespace model
