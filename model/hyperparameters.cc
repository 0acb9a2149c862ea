#include "model/hyperparameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/cat.h"
#include "base/limits.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

// Bounds beyond any published model, so that products of a few numbers stay far from overflow.
constexpr int64_t kHiddenMax = 1 << 20;
constexpr int64_t kPositionsMax = int64_t{1} << 40;

Status read_groups(const Keys& keys, Experts& experts) {
  const Metadata& metadata = keys.metadata();
  ASSIGN_OR_RETURN(const int64_t groups,
                   metadata.integer_or(keys.name(kGroupCount), 1, 0, experts.count));
  if (groups <= 1) return {};
  if (experts.count % groups != 0) {
    return keys.broken(kGroupCount,
                       cat("is ", groups, ", which does not divide ", experts.count, " experts"));
  }
  ASSIGN_OR_RETURN(const int64_t used, keys.integer("expert_group_used_count", 1, groups));
  if (used * (experts.count / groups) < experts.used) {
    return keys.broken(
        "expert_group_used_count",
        cat("is ", used, ": groups of ", experts.count / groups, " experts, too few for ",
            keys.name("expert_used_count"), " ", experts.used));
  }
  experts.groups = static_cast<int>(groups);
  experts.groups_used = static_cast<int>(used);
  return {};
}

/// Numbers that must have one of the given values, because nothing here applies another.
struct Neutral {
  std::string_view suffix;
  std::array<double, 2> values;
};
constexpr Neutral kNeutral[] = {
    {kLogitScale, {0, 1}},
    {kResidualScale, {0, 1}},
    {kEmbeddingScale, {0, 1}},
    {"attn_logit_softcapping", {0, 0}},
    {"final_logit_softcapping", {0, 0}},
    {"attention.clamp_kqv", {0, 0}},
    {"attention.max_alibi_bias", {0, 0}},
    {"attention.group_norm_groups", {0, 0}},
    {"attention.temperature_scale", {0, 0}},
    {kSharedCount, {0, 0}},
    {kGroupCount, {0, 1}},
    {kLeadingDense, {0, 0}},
    {kExpertStep, {0, 1}},
    {kNextLayers, {0, 0}},
    {kYarnLog, {0, 0}},
};

}  // namespace

Error Keys::broken(std::string_view suffix, std::string_view problem) const {
  return {Code::kBrokenFile, cat("metadata key '", name(suffix), "' ", problem)};
}

Error Keys::unsupported(std::string_view suffix, std::string_view problem) const {
  return {Code::kUnsupported, cat("metadata key '", name(suffix), "' ", problem)};
}

Result<float> Keys::number_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const double value, metadata_.number_or(name(suffix), double{fallback}));
  if (std::abs(value) > double{std::numeric_limits<float>::max()}) {
    return broken(suffix, cat("is ", value, ", more than a 32-bit float holds"));
  }
  return static_cast<float>(value);
}

Result<float> Keys::positive_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const float value, number_or(suffix, fallback));
  if (!(value > 0)) return broken(suffix, cat("is ", value, ", not above zero"));
  return value;
}

Result<float> Keys::not_negative_or(std::string_view suffix, float fallback) const {
  ASSIGN_OR_RETURN(const float value, number_or(suffix, fallback));
  if (value < 0) return broken(suffix, cat("is ", value, ", below zero"));
  return value;
}

Result<CommonNumbers> read_common(const Keys& keys, const Architecture& architecture) {
  CommonNumbers common;
  ASSIGN_OR_RETURN(common.file_layers, keys.integer("block_count", 1, base::kLayersMax));
  common.layers = common.file_layers;
  if (architecture.has(kNextLayers)) {
    ASSIGN_OR_RETURN(const int64_t next,
                     keys.metadata().integer_or(keys.name(kNextLayers), 0, 0, common.layers - 1));
    common.layers -= next;
  }
  ASSIGN_OR_RETURN(common.hidden, keys.integer("embedding_length", 1, kHiddenMax));
  ASSIGN_OR_RETURN(common.context, keys.integer("context_length", 1, kPositionsMax));
  constexpr std::string_view kEpsilon = "attention.layer_norm_rms_epsilon";
  if (!keys.has(kEpsilon)) return keys.broken(kEpsilon, "is missing");
  ASSIGN_OR_RETURN(common.norm_epsilon, keys.positive_or(kEpsilon, 0));
  return common;
}

Status read_scales(const Keys& keys, const Architecture& architecture, ModelSpec& spec) {
  // Zero is how some converters write "no scale".
  const auto scale = [&](std::string_view key) -> Result<float> {
    if (!architecture.has(key)) return 1.0F;
    ASSIGN_OR_RETURN(const float value, keys.not_negative_or(key, 1));
    return value > 0 ? value : 1.0F;
  };
  ASSIGN_OR_RETURN(spec.embedding_scale, scale(kEmbeddingScale));
  ASSIGN_OR_RETURN(spec.residual_scale, scale(kResidualScale));
  ASSIGN_OR_RETURN(const float divisor, scale(kLogitScale));
  spec.logit_scale = 1 / divisor;
  return {};
}

Result<std::vector<bool>> read_expert_layers(const Keys& keys, const CommonNumbers& common,
                                             const Architecture& architecture) {
  const Metadata& metadata = keys.metadata();
  bool any = architecture.feed_forward == FeedForward::kExperts;
  if (architecture.feed_forward == FeedForward::kExpertsIfCounted) {
    ASSIGN_OR_RETURN(const int64_t count,
                     metadata.integer_or(keys.name("expert_count"), 0, 0, base::kExpertsMax));
    any = count > 0;
  }
  int64_t leading = 0, step = 1;
  if (architecture.has(kLeadingDense)) {
    ASSIGN_OR_RETURN(leading,
                     metadata.integer_or(keys.name(kLeadingDense), 0, 0, common.file_layers));
  }
  if (any && architecture.has(kExpertStep)) {
    ASSIGN_OR_RETURN(step, metadata.integer_or(keys.name(kExpertStep), 1, 1, base::kLayersMax));
  }
  std::vector<bool> layers;
  for (int64_t i = 0; i < common.layers; ++i) {
    layers.push_back(any && i >= leading && (i + 1) % step == 0);
  }
  return layers;
}

Result<Experts> read_experts(const Keys& keys, const Architecture& architecture) {
  const ExpertRule& rule = architecture.experts;
  Experts experts;
  ASSIGN_OR_RETURN(const int64_t count, keys.integer("expert_count", 1, base::kExpertsMax));
  ASSIGN_OR_RETURN(const int64_t used, keys.integer("expert_used_count", 1, base::kExpertsUsedMax));
  if (used > count) {
    return keys.broken("expert_used_count",
                       cat("is ", used, " but ", keys.name("expert_count"), " is ", count));
  }
  experts.count = static_cast<int>(count);
  experts.used = static_cast<int>(used);
  ASSIGN_OR_RETURN(
      experts.normalise_weights,
      keys.metadata().boolean_or(keys.name("expert_weights_norm"), rule.normalise_weights));
  // Zero is how some converters write "no scale".
  ASSIGN_OR_RETURN(const float scale, keys.not_negative_or("expert_weights_scale", 1));
  experts.weight_scale = scale > 0 ? scale : 1;
  constexpr std::string_view kGating = "expert_gating_func";
  ASSIGN_OR_RETURN(
      const int64_t gating,
      keys.metadata().integer_or(keys.name(kGating), 0, 0, std::numeric_limits<int64_t>::max()));
  if (gating > 3) {
    return keys.unsupported(kGating, cat("is ", gating,
                                         "; known are 1 (softmax), 2 (sigmoid), 3 (softmax of the "
                                         "chosen experts)"));
  }
  experts.score = rule.score;  // 0 is how some converters write "not said"
  if (gating == 1) experts.score = RouterScore::kSoftmax;
  if (gating == 2) experts.score = RouterScore::kSigmoid;
  if (gating == 3) experts.score = RouterScore::kSoftmaxOfChosen;
  experts.weighs_input = rule.weighs_input;
  if (architecture.has(kGroupCount)) RETURN_IF_ERROR(read_groups(keys, experts));
  return experts;
}

Status refuse_unapplied(const Keys& keys, const CommonNumbers& common,
                        const Architecture& architecture) {
  for (const auto& [suffix, values] : kNeutral) {
    if (architecture.has(suffix)) continue;
    ASSIGN_OR_RETURN(const double value, keys.metadata().number_or(keys.name(suffix), values[0]));
    if (value != values[0] && value != values[1]) {
      return keys.unsupported(suffix, cat("is ", value, ", which this program does not apply"));
    }
  }
  ASSIGN_OR_RETURN(const bool causal,
                   keys.metadata().boolean_or(keys.name("attention.causal"), true));
  if (!causal) return keys.unsupported("attention.causal", "is false: not a text generator");
  if (architecture.reach.near != Reach::kAll) return {};
  constexpr std::string_view kWindowBase = "rope.freq_base_swa";
  if (keys.has(kWindowBase)) {
    ASSIGN_OR_RETURN(const float base, keys.positive_or("rope.freq_base", 10000));
    ASSIGN_OR_RETURN(const float own, keys.positive_or(kWindowBase, base));
    if (own != base) {
      return keys.unsupported(kWindowBase, cat("is ", own, ", which this program does not apply"));
    }
  }
  if (!keys.has(kWindow)) return {};
  ASSIGN_OR_RETURN(
      const std::vector<int64_t> windows,
      keys.metadata().per_layer(keys.name(kWindow), common.file_layers, 0, kPositionsMax));
  const auto cuts = [&](int64_t window) { return window > 0 && window < common.context; };
  if (std::ranges::any_of(windows, cuts)) {
    return keys.unsupported(kWindow, "is shorter than the context; windows are not supported");
  }
  return {};
}

}  // namespace model
