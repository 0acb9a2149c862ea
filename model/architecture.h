// What makes an architecture, as data: one row per name in model/architectures.cc.
//
// Everything else comes from the file's metadata and tensors. Constant data; no thread rule.
#pragma once

#include <span>
#include <string_view>

#include "model/model.h"

namespace model {

enum class Presence { kNone, kOptional, kRequired };
enum class FeedForward { kDense, kExperts, kExpertsIfCounted };

/// Layers that attend to near positions only, and between them some that reach all.
struct ReachRule {
  Reach near = Reach::kAll;  // kAll: no layer is bounded
  int64_t period = 0;        // of so many layers the last reaches all; the file may say it
  int64_t span = 0;          // where attention.sliding_window is missing; 0: it must be there
  // Layers that reach all have no rope, and this instead.
  std::optional<Temperature> far_temperature = {};
};

struct ExpertRule {
  // What counts if the file does not say it.
  bool normalise_weights = false;
  RouterScore score = RouterScore::kSoftmax;
  // feed_forward_length is the width of an expert where expert_feed_forward_length is missing; or
  // that of the shared experts where they have no numbers of their own.
  bool width_from_feed_forward = false;
  bool shared_width_from_feed_forward = false;
  int64_t shared_count = 0;  // where expert_shared_count is missing
  bool weighs_input = false;
  Presence biases = Presence::kNone;  // of the router and of every expert's matrices
  Presence selection_bias = Presence::kNone;
  Presence shared_router = Presence::kNone;  // where there are shared experts
};

/// Keys that are refused unless neutral, except by the architectures that apply them.
inline constexpr std::string_view kSharedCount = "expert_shared_count";
inline constexpr std::string_view kGroupCount = "expert_group_count";
inline constexpr std::string_view kLeadingDense = "leading_dense_block_count";
inline constexpr std::string_view kExpertStep = "interleave_moe_layer_step";
inline constexpr std::string_view kNextLayers = "nextn_predict_layers";
inline constexpr std::string_view kLogitScale = "logit_scale";
inline constexpr std::string_view kResidualScale = "residual_scale";
inline constexpr std::string_view kEmbeddingScale = "embedding_scale";
inline constexpr std::string_view kYarnLog = "rope.scaling.yarn_log_multiplier";

struct Architecture {
  std::string_view name;
  RopeStyle rope = RopeStyle::kHalves;
  bool latent_attention = false;
  Presence qk_norm = Presence::kNone;
  Presence qkv_bias = Presence::kOptional;
  Presence output_bias = Presence::kOptional;  // of the attention's output
  Presence sinks = Presence::kNone;
  ReachRule reach = {};
  // Turned heads are normed, without weights, but in models of so many experts.
  bool norm_after_rope = false;
  int64_t unnormed_at_experts = 0;
  ActivationSpec activation = {};
  FeedForward feed_forward = FeedForward::kDense;
  std::string_view ffn_norm = "ffn_norm.weight";  // name of the norm before the feed-forward
  ExpertRule experts = {};
  std::span<const std::string_view> applies = {};  // of the keys above

  bool has(std::string_view key) const;
};

}  // namespace model
