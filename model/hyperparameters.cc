#include "model/hyperparameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/cat.h"
#include "base/limits.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

// Bounds beyond any published model, so that products of a few numbers stay far from overflow.
constexpr int64_t kHiddenMax = 1 << 20;
constexpr int64_t kHeadsMax = 1 << 16;
constexpr int64_t kHeadDimMax = 1 << 14;
constexpr int64_t kPositionsMax = int64_t{1} << 40;

Error broken(const Keys& keys, std::string_view suffix, std::string_view problem) {
  return {Code::kBrokenFile, cat("metadata key '", keys.name(suffix), "' ", problem)};
}

Error unsupported(const Keys& keys, std::string_view suffix, std::string_view problem) {
  return {Code::kUnsupported, cat("metadata key '", keys.name(suffix), "' ", problem)};
}

/// Weights per head of keys: their own key, or the hidden size shared by all heads.
Result<int64_t> read_head_dim(const Keys& keys, int64_t hidden, int64_t heads) {
  if (keys.has("attention.key_length")) {
    return keys.integer("attention.key_length", 1, kHeadDimMax);
  }
  if (hidden % heads != 0 || hidden / heads > kHeadDimMax) {
    return broken(keys, "attention.head_count",
                  cat("is ", heads, ", which does not divide ", keys.name("embedding_length"), " ",
                      hidden, ", and attention.key_length is missing"));
  }
  return hidden / heads;
}

Status read_yarn(const Keys& keys, Rope& rope) {
  if (rope.factor < 1) {
    return broken(keys, "rope.scaling.factor", cat("is ", rope.factor, ", below 1 for YaRN"));
  }
  ASSIGN_OR_RETURN(rope.ext_factor, keys.not_negative_or("rope.scaling.yarn_ext_factor", 1));
  ASSIGN_OR_RETURN(const float attention, keys.positive_or("rope.scaling.attn_factor", 1));
  ASSIGN_OR_RETURN(const float yarn, keys.positive_or("rope.scaling.yarn_attn_factor", 1));
  rope.attention_factor = attention * yarn;
  ASSIGN_OR_RETURN(rope.beta_fast, keys.positive_or("rope.scaling.yarn_beta_fast", 32));
  ASSIGN_OR_RETURN(rope.beta_slow, keys.positive_or("rope.scaling.yarn_beta_slow", 1));
  return {};
}

Status read_rope_scaling(const Keys& keys, int64_t context, Rope& rope) {
  ASSIGN_OR_RETURN(rope.factor, keys.positive_or("rope.scaling.factor", 1));
  if (!keys.has("rope.scaling.factor")) {
    // The older name of the factor of linear scaling.
    ASSIGN_OR_RETURN(rope.factor, keys.positive_or("rope.scale_linear", 1));
  }
  // A factor without a type is linear: so it was before there were types.
  ASSIGN_OR_RETURN(const std::string type,
                   keys.metadata().string_or(keys.name("rope.scaling.type"), "linear"));
  ASSIGN_OR_RETURN(rope.original_context,
                   keys.metadata().integer_or(keys.name("rope.scaling.original_context_length"),
                                              context, 1, kPositionsMax));
  if (type == "none" || (type == "linear" && rope.factor == 1)) {
    rope.factor = 1;
    return {};
  }
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    return {};
  }
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    return read_yarn(keys, rope);
  }
  return unsupported(keys, "rope.scaling.type",
                     cat("is '", printable(type), "'; known are none, linear, yarn"));
}

/// `shared` holds what does not depend on the head size.
Result<Rope> read_rope(const Keys& keys, const Rope& shared, int64_t head_dim) {
  Rope rope = shared;
  ASSIGN_OR_RETURN(const int64_t dims, keys.metadata().integer_or(keys.name("rope.dimension_count"),
                                                                  head_dim, 2, head_dim));
  if (dims % 2 != 0) {
    return broken(keys, "rope.dimension_count", cat("is ", dims, ", not an even number"));
  }
  rope.dims = static_cast<int>(dims);
  return rope;
}

Result<float> read_scale(const Keys& keys, int64_t head_dim) {
  ASSIGN_OR_RETURN(const float scale, keys.not_negative_or("attention.scale", 0));
  if (scale > 0) return scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

/// Numbers that must have one of the given values, because nothing here applies another.
struct Neutral {
  std::string_view suffix;
  std::array<double, 2> values;
};
constexpr Neutral kNeutral[] = {
    {"logit_scale", {0, 1}},
    {"residual_scale", {0, 1}},
    {"embedding_scale", {0, 1}},
    {"attn_logit_softcapping", {0, 0}},
    {"final_logit_softcapping", {0, 0}},
    {"attention.clamp_kqv", {0, 0}},
    {"attention.max_alibi_bias", {0, 0}},
    {"attention.group_norm_groups", {0, 0}},
    {"expert_shared_count", {0, 0}},
    {"expert_group_count", {0, 1}},
    {"leading_dense_block_count", {0, 0}},
    {"interleave_moe_layer_step", {0, 1}},
    {"nextn_predict_layers", {0, 0}},
};

}  // namespace

Result<float> Keys::number_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const double value, metadata_.number_or(name(suffix), double{fallback}));
  if (std::abs(value) > double{std::numeric_limits<float>::max()}) {
    return broken(*this, suffix, cat("is ", value, ", more than a 32-bit float holds"));
  }
  return static_cast<float>(value);
}

Result<float> Keys::positive_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const float value, number_or(suffix, fallback));
  if (!(value > 0)) return broken(*this, suffix, cat("is ", value, ", not above zero"));
  return value;
}

Result<float> Keys::not_negative_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const float value, number_or(suffix, fallback));
  if (value < 0) return broken(*this, suffix, cat("is ", value, ", below zero"));
  return value;
}

Result<CommonNumbers> read_common(const Keys& keys) {
  CommonNumbers common;
  ASSIGN_OR_RETURN(common.layers, keys.integer("block_count", 1, base::kLayersMax));
  ASSIGN_OR_RETURN(common.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  ASSIGN_OR_RETURN(common.context, keys.integer("context_length", 1, kPositionsMax));
  constexpr std::string_view kEpsilon = "attention.layer_norm_rms_epsilon";
  if (!keys.has(kEpsilon)) return broken(keys, kEpsilon, "is missing");
  ASSIGN_OR_RETURN(common.norm_epsilon, keys.positive_or(kEpsilon, 0));
  return common;
}

Result<std::vector<Attention>> read_attention(const Keys& keys, const CommonNumbers& common,
                                              RopeStyle style) {
  const Metadata& metadata = keys.metadata();
  ASSIGN_OR_RETURN(
      const std::vector<int64_t> heads,
      metadata.per_layer(keys.name("attention.head_count"), common.layers, 1, kHeadsMax));
  std::vector<int64_t> kv_heads = heads;
  if (keys.has("attention.head_count_kv")) {
    ASSIGN_OR_RETURN(kv_heads, metadata.per_layer(keys.name("attention.head_count_kv"),
                                                  common.layers, 1, kHeadsMax));
  }
  Rope rope{.style = style};
  ASSIGN_OR_RETURN(rope.base, keys.positive_or("rope.freq_base", 10000));
  if (rope.base <= 1) {  // YaRN divides by its logarithm
    return broken(keys, "rope.freq_base", cat("is ", rope.base, ", not above one"));
  }
  RETURN_IF_ERROR(read_rope_scaling(keys, common.context, rope));

  std::vector<Attention> layers;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (heads[i] % kv_heads[i] != 0) {
      return broken(keys, "attention.head_count_kv",
                    cat("is ", kv_heads[i], " for layer ", i, ", which does not divide ", heads[i],
                        " heads"));
    }
    ASSIGN_OR_RETURN(const int64_t head_dim, read_head_dim(keys, common.hidden, heads[i]));
    ASSIGN_OR_RETURN(
        const int64_t value_dim,
        metadata.integer_or(keys.name("attention.value_length"), head_dim, 1, kHeadDimMax));
    Attention layer;
    layer.heads = static_cast<int>(heads[i]);
    layer.kv_heads = static_cast<int>(kv_heads[i]);
    layer.head_dim = static_cast<int>(head_dim);
    layer.value_dim = static_cast<int>(value_dim);
    ASSIGN_OR_RETURN(layer.scale, read_scale(keys, head_dim));
    ASSIGN_OR_RETURN(layer.rope, read_rope(keys, rope, head_dim));
    layers.push_back(layer);
  }
  return layers;
}

Result<Experts> read_experts(const Keys& keys, bool normalise_weights) {
  Experts experts;
  ASSIGN_OR_RETURN(const int64_t count, keys.integer("expert_count", 1, base::kExpertsMax));
  ASSIGN_OR_RETURN(const int64_t used, keys.integer("expert_used_count", 1, base::kExpertsUsedMax));
  if (used > count) {
    return broken(keys, "expert_used_count",
                  cat("is ", used, " but ", keys.name("expert_count"), " is ", count));
  }
  experts.count = static_cast<int>(count);
  experts.used = static_cast<int>(used);
  ASSIGN_OR_RETURN(experts.normalise_weights,
                   keys.metadata().boolean_or(keys.name("expert_weights_norm"), normalise_weights));
  // Zero is how some converters write "no scale".
  ASSIGN_OR_RETURN(const float scale, keys.not_negative_or("expert_weights_scale", 1));
  experts.weight_scale = scale > 0 ? scale : 1;
  constexpr std::string_view kGating = "expert_gating_func";
  ASSIGN_OR_RETURN(
      const int64_t gating,
      keys.metadata().integer_or(keys.name(kGating), 1, 0, std::numeric_limits<int64_t>::max()));
  if (gating > 2) {
    return unsupported(keys, kGating, cat("is ", gating, "; known are 1 (softmax), 2 (sigmoid)"));
  }
  experts.score = gating == 2 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  return experts;
}

Status refuse_unapplied(const Keys& keys, const CommonNumbers& common) {
  for (const auto& [suffix, values] : kNeutral) {
    ASSIGN_OR_RETURN(const double value, keys.metadata().number_or(keys.name(suffix), values[0]));
    if (value != values[0] && value != values[1]) {
      return unsupported(keys, suffix, cat("is ", value, ", which this program does not apply"));
    }
  }
  ASSIGN_OR_RETURN(const bool causal,
                   keys.metadata().boolean_or(keys.name("attention.causal"), true));
  if (!causal) return unsupported(keys, "attention.causal", "is false: not a text generator");
  constexpr std::string_view kWindow = "attention.sliding_window";
  if (!keys.has(kWindow)) return {};
  ASSIGN_OR_RETURN(const std::vector<int64_t> windows,
                   keys.metadata().per_layer(keys.name(kWindow), common.layers, 0, kPositionsMax));
  const auto cuts = [&](int64_t window) { return window > 0 && window < common.context; };
  if (std::ranges::any_of(windows, cuts)) {
    return unsupported(keys, kWindow, "is shorter than the context; windows are not supported");
  }
  return {};
}

}  // namespace model
