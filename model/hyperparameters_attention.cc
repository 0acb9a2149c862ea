// Heads, widths, scales and rope of each layer's attention.
#include <cmath>

#include "base/cat.h"
#include "model/hyperparameters.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Result;
using base::Status;

// Bounds beyond any published model, as in hyperparameters.cc.
constexpr int64_t kHeadsMax = 1 << 16;
constexpr int64_t kHeadDimMax = 1 << 14;
constexpr int64_t kQueryRankMax = 1 << 20;
constexpr int64_t kPositionsMax = int64_t{1} << 40;

/// Weights per head of keys: their own key, or the hidden size shared by all heads.
Result<int64_t> read_head_dim(const Keys& keys, int64_t hidden, int64_t heads) {
  if (keys.has("attention.key_length")) {
    return keys.integer("attention.key_length", 1, kHeadDimMax);
  }
  if (hidden % heads != 0 || hidden / heads > kHeadDimMax) {
    return keys.broken("attention.head_count",
                       cat("is ", heads, ", which does not divide ", keys.name("embedding_length"),
                           " ", hidden, ", and attention.key_length is missing"));
  }
  return hidden / heads;
}

Status read_yarn(const Keys& keys, Rope& rope) {
  if (rope.factor < 1) {
    return keys.broken("rope.scaling.factor", cat("is ", rope.factor, ", below 1 for YaRN"));
  }
  ASSIGN_OR_RETURN(rope.ext_factor, keys.not_negative_or("rope.scaling.yarn_ext_factor", 1));
  ASSIGN_OR_RETURN(const float attention, keys.positive_or("rope.scaling.attn_factor", 1));
  ASSIGN_OR_RETURN(const float yarn, keys.positive_or("rope.scaling.yarn_attn_factor", 1));
  rope.attention_factor = attention * yarn;
  ASSIGN_OR_RETURN(rope.beta_fast, keys.positive_or("rope.scaling.yarn_beta_fast", 32));
  ASSIGN_OR_RETURN(rope.beta_slow, keys.positive_or("rope.scaling.yarn_beta_slow", 1));
  return {};
}

Status read_long(const Keys& keys, int64_t context, Rope& rope) {
  constexpr std::string_view kOriginal = "rope.scaling.original_context_length";
  if (!keys.has(kOriginal)) return keys.broken(kOriginal, "is missing, which LongRoPE needs");
  if (rope.original_context > context) {
    return keys.broken(kOriginal, cat("is ", rope.original_context, ", above ",
                                      keys.name("context_length"), " ", context));
  }
  rope.factor = 1;  // it is in the factors of the pairs
  ASSIGN_OR_RETURN(rope.attention_factor, keys.positive_or("rope.scaling.attn_factor", 1));
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
  if (type == "longrope") {
    rope.scaling = RopeScaling::kLong;
    return read_long(keys, context, rope);
  }
  return keys.unsupported("rope.scaling.type", cat("is '", printable(type),
                                                   "'; known are none, linear, yarn, longrope"));
}

/// `shared` holds what does not depend on the head size.
Result<Rope> read_rope(const Keys& keys, const Rope& shared, int64_t head_dim) {
  Rope rope = shared;
  ASSIGN_OR_RETURN(const int64_t dims, keys.metadata().integer_or(keys.name("rope.dimension_count"),
                                                                  head_dim, 2, head_dim));
  if (dims % 2 != 0) {
    return keys.broken("rope.dimension_count", cat("is ", dims, ", not an even number"));
  }
  rope.dims = static_cast<int>(dims);
  return rope;
}

Result<float> read_scale(const Keys& keys, int64_t head_dim) {
  ASSIGN_OR_RETURN(const float scale, keys.not_negative_or("attention.scale", 0));
  if (scale > 0) return scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

/// Widths of one layer whose KV heads hold keys and values. The number of heads is set.
Status read_head_dims(const Keys& keys, int64_t hidden, Attention& layer) {
  ASSIGN_OR_RETURN(const int64_t head_dim, read_head_dim(keys, hidden, layer.heads));
  ASSIGN_OR_RETURN(
      const int64_t value_dim,
      keys.metadata().integer_or(keys.name("attention.value_length"), head_dim, 1, kHeadDimMax));
  layer.head_dim = static_cast<int>(head_dim);
  layer.value_dim = static_cast<int>(value_dim);
  ASSIGN_OR_RETURN(layer.scale, read_scale(keys, head_dim));
  ASSIGN_OR_RETURN(layer.rope, read_rope(keys, layer.rope, head_dim));
  return {};
}

/// A length that files with projections per head give under a name of its own, because there the
/// plain name means what is cached.
Result<int64_t> read_latent_length(const Keys& keys, std::string_view plain) {
  const std::string own = cat(plain, "_mla");
  return keys.integer(keys.has(own) ? std::string_view(own) : plain, 1, kHeadDimMax);
}

/// Widths of one layer that caches a latent.
Status read_latent(const Keys& keys, Attention& layer) {
  const Metadata& metadata = keys.metadata();
  Latent latent;
  ASSIGN_OR_RETURN(const int64_t rank, keys.integer("attention.kv_lora_rank", 1, kHeadDimMax));
  ASSIGN_OR_RETURN(const int64_t query_rank,
                   metadata.integer_or(keys.name("attention.q_lora_rank"), 0, 0, kQueryRankMax));
  ASSIGN_OR_RETURN(const int64_t query_dim, read_latent_length(keys, "attention.key_length"));
  ASSIGN_OR_RETURN(const int64_t value_dim, read_latent_length(keys, "attention.value_length"));
  if (!keys.has("rope.dimension_count")) return keys.broken("rope.dimension_count", "is missing");
  ASSIGN_OR_RETURN(layer.rope, read_rope(keys, layer.rope, query_dim - 1));
  latent.rank = static_cast<int>(rank);
  latent.query_rank = static_cast<int>(query_rank);
  latent.plain_dim = static_cast<int>(query_dim) - layer.rope.dims;
  latent.value_dim = static_cast<int>(value_dim);
  const int64_t cached = rank + layer.rope.dims;
  if (keys.has("attention.key_length_mla")) {
    ASSIGN_OR_RETURN(const int64_t said, metadata.integer_or(keys.name("attention.key_length"),
                                                             cached, 1, kHeadDimMax));
    if (said != cached) {
      return keys.broken("attention.key_length",
                         cat("is ", said, ", not the ", cached, " of attention.kv_lora_rank (",
                             rank, ") and rope.dimension_count (", layer.rope.dims, ")"));
    }
  }
  ASSIGN_OR_RETURN(layer.scale, read_scale(keys, query_dim));
  // Such models widen their scores instead of cos and sin when YaRN stretches the context.
  ASSIGN_OR_RETURN(const float score_log, keys.not_negative_or(kYarnLog, 0));
  if (layer.rope.scaling == RopeScaling::kYarn && score_log > 0) {
    layer.rope.magnitude_log = 0;
    latent.score_log = static_cast<double>(score_log);
  }
  layer.kv_heads = 1;
  layer.head_dim = static_cast<int>(cached);
  layer.value_dim = latent.rank;
  layer.latent = latent;
  return {};
}

/// Which layers attend to near positions only, and to how many.
struct NearLayers {
  std::vector<bool> near;  // [layers]
  int64_t span = 0;
  float rope_base = 0;  // of their own
};

Result<std::vector<bool>> read_near_layers(const Keys& keys, const CommonNumbers& common,
                                           const ReachRule& rule) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const std::string key = keys.name(kPattern);
  const Value* value = keys.metadata().find(key);
  const auto layers = static_cast<size_t>(common.file_layers);
  if (value != nullptr && std::holds_alternative<std::vector<bool>>(*value)) {
    const auto& near = std::get<std::vector<bool>>(*value);
    if (near.size() == layers) return near;
    return keys.broken(kPattern, cat("has ", near.size(), " entries for ", layers, " layers"));
  }
  if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> flags,
                     keys.metadata().per_layer(key, common.file_layers, 0, 1));
    return std::vector<bool>(flags.begin(), flags.end());
  }
  ASSIGN_OR_RETURN(const int64_t period,
                   keys.metadata().integer_or(key, rule.period, 0, kPositionsMax));
  std::vector<bool> near;
  for (int64_t i = 0; i < common.file_layers; ++i) {
    near.push_back(period == 0 || i % period != period - 1);
  }
  return near;
}

Result<NearLayers> read_reach(const Keys& keys, const CommonNumbers& common, const ReachRule& rule,
                              float rope_base) {
  NearLayers out;
  if (rule.near == Reach::kAll) return out;
  if (rule.span == 0) {
    ASSIGN_OR_RETURN(out.span, keys.integer(kWindow, 1, kPositionsMax));
  } else {
    // Zero is how some converters write that no layer is bounded.
    ASSIGN_OR_RETURN(out.span,
                     keys.metadata().integer_or(keys.name(kWindow), rule.span, 0, kPositionsMax));
    if (out.span == 0) return out;
  }
  ASSIGN_OR_RETURN(out.near, read_near_layers(keys, common, rule));
  ASSIGN_OR_RETURN(out.rope_base, keys.positive_or("rope.freq_base_swa", rope_base));
  if (out.rope_base <= 1) {
    return keys.broken("rope.freq_base_swa", cat("is ", out.rope_base, ", not above one"));
  }
  return out;
}

void apply_reach(const ReachRule& rule, const NearLayers& layers, size_t index, Attention& layer) {
  if (layers.near.empty()) return;
  if (layers.near[index]) {
    layer.reach = rule.near;
    layer.span = layers.span;
    layer.rope.base = layers.rope_base;
  } else if (rule.far_temperature) {
    layer.temperature = rule.far_temperature;
    layer.rope.dims = 0;
  }
}

/// Whether turned heads are normed, if the family does that.
Result<bool> norms_turned_heads(const Keys& keys, const Architecture& architecture) {
  if (!architecture.norm_after_rope) return false;
  ASSIGN_OR_RETURN(const int64_t experts,
                   keys.metadata().integer_or(keys.name("expert_count"), 0, 0, kHeadsMax));
  return experts != architecture.unnormed_at_experts;
}

}  // namespace

Result<std::vector<Attention>> read_attention(const Keys& keys, const CommonNumbers& common,
                                              const Architecture& architecture) {
  const Metadata& metadata = keys.metadata();
  ASSIGN_OR_RETURN(
      const std::vector<int64_t> heads,
      metadata.per_layer(keys.name("attention.head_count"), common.file_layers, 1, kHeadsMax));
  std::vector<int64_t> kv_heads = heads;
  if (keys.has("attention.head_count_kv")) {
    ASSIGN_OR_RETURN(kv_heads, metadata.per_layer(keys.name("attention.head_count_kv"),
                                                  common.file_layers, 1, kHeadsMax));
  }
  Rope rope{.style = architecture.rope};
  ASSIGN_OR_RETURN(rope.base, keys.positive_or("rope.freq_base", 10000));
  if (rope.base <= 1) {  // YaRN divides by its logarithm
    return keys.broken("rope.freq_base", cat("is ", rope.base, ", not above one"));
  }
  RETURN_IF_ERROR(read_rope_scaling(keys, common.context, rope));
  ASSIGN_OR_RETURN(const NearLayers near, read_reach(keys, common, architecture.reach, rope.base));
  ASSIGN_OR_RETURN(const bool norms_turned, norms_turned_heads(keys, architecture));

  std::vector<Attention> layers;
  for (size_t i = 0; i < static_cast<size_t>(common.layers); ++i) {
    if (heads[i] % kv_heads[i] != 0) {
      return keys.broken("attention.head_count_kv",
                         cat("is ", kv_heads[i], " for layer ", i, ", which does not divide ",
                             heads[i], " heads"));
    }
    Attention layer;
    layer.heads = static_cast<int>(heads[i]);
    layer.kv_heads = static_cast<int>(kv_heads[i]);
    layer.rope = rope;
    RETURN_IF_ERROR(architecture.latent_attention ? read_latent(keys, layer)
                                                  : read_head_dims(keys, common.hidden, layer));
    apply_reach(architecture.reach, near, i, layer);
    if (norms_turned && layer.rope.dims > 0) layer.qk_norm = QkNorm::kAfterRope;
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace model
