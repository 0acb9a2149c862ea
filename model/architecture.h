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

struct ExpertRule {
  // What counts if the file does not say it.
  bool normalise_weights = false;
  RouterScore score = RouterScore::kSoftmax;
  // feed_forward_length is the width of an expert where expert_feed_forward_length is missing; or
  // that of the shared experts where they have no numbers of their own.
  bool width_from_feed_forward = false;
  bool shared_width_from_feed_forward = false;
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
  FeedForward feed_forward = FeedForward::kDense;
  std::string_view ffn_norm = "ffn_norm.weight";  // name of the norm before the feed-forward
  ExpertRule experts = {};
  std::span<const std::string_view> applies = {};  // of the keys above

  bool has(std::string_view key) const;
};

}  // namespace model
