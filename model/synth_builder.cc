#include "model/synth_builder.h"

namespace model {

namespace {

// Hidden states begin with deviation 1 and every product keeps it: matrices have 1/sqrt(row
// length). What a layer adds is smaller by sqrt(2 layers), as GPT-2 was initialised, so the
// residual stays near 1 and keeps telling tokens apart over any number of layers.
constexpr double kEmbeddingDeviation = 1;
// The deviation of logits, and of router scores: experts differ, none is chosen by most tokens.
constexpr double kHeadGain = 3;
constexpr double kRouterGain = 1.5;
// silu(gate) * up has about 0.6 of the deviation of its factors.
constexpr double kDownGain = 1 / 0.6;
// Biases and sinks are there to be added, not to decide.
constexpr double kBiasDeviation = 0.02;

}  // namespace

void SynthBuilder::start() {
  model_.metadata.set("general.architecture", std::string(architecture_));
  model_.metadata.set("general.name", std::string(shape_.title));
  key("block_count", shape_.layers);
  key("context_length", shape_.context);
  key("embedding_length", shape_.hidden);
  key("attention.head_count", shape_.heads);
  key("attention.head_count_kv", shape_.kv_heads);
  key("attention.layer_norm_rms_epsilon", rounded(shape_.norm_epsilon));
  key("rope.freq_base", rounded(shape_.rope_base));
  key("vocab_size", shape_.vocabulary);
  if (shape_.rope_dims > 0) key("rope.dimension_count", shape_.rope_dims);
  yarn_keys();
  add({.name = "token_embd.weight",
       .shape = {shape_.hidden, shape_.vocabulary},
       .role = SynthRole::kEmbedding,
       .deviation = kEmbeddingDeviation});
  norm("output_norm.weight", shape_.hidden);
  add({.name = "output.weight",
       .shape = {shape_.hidden, shape_.vocabulary},
       .role = SynthRole::kHead,
       .deviation = kHeadGain / root(shape_.hidden)});
}

void SynthBuilder::attention(int64_t layer) {
  const int64_t q_rows = shape_.heads * shape_.head_dim;
  const int64_t kv_rows = shape_.kv_heads * shape_.head_dim;
  norm(in_layer(layer, "attn_norm.weight"), shape_.hidden);
  matrix(in_layer(layer, "attn_q.weight"), {shape_.hidden, q_rows}, 1);
  matrix(in_layer(layer, "attn_k.weight"), {shape_.hidden, kv_rows}, 1);
  matrix(in_layer(layer, "attn_v.weight"), {shape_.hidden, kv_rows}, 1);
  matrix(in_layer(layer, "attn_output.weight"), {q_rows, shape_.hidden}, residual_gain());
}

void SynthBuilder::latent_attention(int64_t layer) {
  const SynthLatent& latent = shape_.latent;
  const int64_t q_rows = shape_.heads * (latent.plain_dim + shape_.rope_dims);
  norm(in_layer(layer, "attn_norm.weight"), shape_.hidden);
  if (latent.query_rank > 0) {
    matrix(in_layer(layer, "attn_q_a.weight"), {shape_.hidden, latent.query_rank}, 1);
    norm(in_layer(layer, "attn_q_a_norm.weight"), latent.query_rank);
    matrix(in_layer(layer, "attn_q_b.weight"), {latent.query_rank, q_rows}, 1);
  } else {
    matrix(in_layer(layer, "attn_q.weight"), {shape_.hidden, q_rows}, 1);
  }
  matrix(in_layer(layer, "attn_kv_a_mqa.weight"), {shape_.hidden, shape_.head_dim}, 1);
  norm(in_layer(layer, "attn_kv_a_norm.weight"), latent.rank);
  per_head(in_layer(layer, "attn_k_b.weight"), {latent.plain_dim, latent.rank, shape_.heads});
  per_head(in_layer(layer, "attn_v_b.weight"), {latent.rank, latent.value_dim, shape_.heads});
  matrix(in_layer(layer, "attn_output.weight"), {shape_.heads * latent.value_dim, shape_.hidden},
         residual_gain());
}

void SynthBuilder::qkv_bias(int64_t layer) {
  bias(in_layer(layer, "attn_q.bias"), {shape_.heads * shape_.head_dim});
  bias(in_layer(layer, "attn_k.bias"), {shape_.kv_heads * shape_.head_dim});
  bias(in_layer(layer, "attn_v.bias"), {shape_.kv_heads * shape_.head_dim});
}

void SynthBuilder::further_biases(int64_t layer) {
  bias(in_layer(layer, "attn_output.bias"), {shape_.hidden});
  bias(in_layer(layer, "attn_sinks.weight"), {shape_.heads});
  bias(in_layer(layer, "ffn_gate_inp.bias"), {shape_.experts});
  bias(in_layer(layer, "ffn_gate_exps.bias"), {shape_.expert_width, shape_.experts});
  bias(in_layer(layer, "ffn_up_exps.bias"), {shape_.expert_width, shape_.experts});
  bias(in_layer(layer, "ffn_down_exps.bias"), {shape_.hidden, shape_.experts});
}

void SynthBuilder::qk_norm(int64_t layer, int64_t q_length, int64_t k_length) {
  norm(in_layer(layer, "attn_q_norm.weight"), q_length);
  norm(in_layer(layer, "attn_k_norm.weight"), k_length);
}

void SynthBuilder::expert_keys() {
  key("expert_count", shape_.experts);
  key("expert_used_count", shape_.experts_used);
}

void SynthBuilder::expert_keys_with_widths() {
  expert_keys();
  key("feed_forward_length", shape_.dense_width);
  key("expert_feed_forward_length", shape_.expert_width);
  if (shape_.leading_dense > 0) key("leading_dense_block_count", shape_.leading_dense);
  if (shape_.shared_experts > 0) key("expert_shared_count", shape_.shared_experts);
}

void SynthBuilder::head_keys() {
  key("attention.key_length", shape_.head_dim);
  key("attention.value_length", shape_.head_dim);
}

void SynthBuilder::router_keys() {
  const SynthRouter& router = shape_.router;
  key("expert_gating_func", int64_t{router.sigmoid ? 2 : 1});
  key("expert_weights_norm", router.sigmoid);
  key("expert_weights_scale", rounded(router.scale));
  if (router.groups > 1) {
    key("expert_group_count", router.groups);
    key("expert_group_used_count", router.groups_used);
  }
}

void SynthBuilder::feed_forward(int64_t layer, std::string_view norm_name) {
  if (layer >= shape_.leading_dense) return expert_feed_forward(layer, norm_name);
  const std::vector<int64_t> inner = {shape_.hidden, shape_.dense_width};
  norm(in_layer(layer, norm_name), shape_.hidden);
  matrix(in_layer(layer, "ffn_gate.weight"), inner, 1);
  matrix(in_layer(layer, "ffn_up.weight"), inner, 1);
  matrix(in_layer(layer, "ffn_down.weight"), {shape_.dense_width, shape_.hidden},
         kDownGain * residual_gain());
}

void SynthBuilder::expert_feed_forward(int64_t layer, std::string_view norm_name) {
  const std::vector<int64_t> inner = {shape_.hidden, shape_.expert_width, shape_.experts};
  const std::vector<int64_t> outer = {shape_.expert_width, shape_.hidden, shape_.experts};
  norm(in_layer(layer, norm_name), shape_.hidden);
  add({.name = in_layer(layer, "ffn_gate_inp.weight"),
       .shape = {shape_.hidden, shape_.experts},
       .role = SynthRole::kRouter,
       .deviation = kRouterGain / root(shape_.hidden)});
  matrix(in_layer(layer, "ffn_gate_exps.weight"), inner, 1);
  matrix(in_layer(layer, "ffn_up_exps.weight"), inner, 1);
  matrix(in_layer(layer, "ffn_down_exps.weight"), outer, kDownGain * residual_gain());
  if (shape_.router.sigmoid) bias(in_layer(layer, "exp_probs_b.bias"), {shape_.experts});
  if (shape_.shared_experts == 0) return;
  const int64_t width = shape_.shared_experts * shape_.expert_width;
  matrix(in_layer(layer, "ffn_gate_shexp.weight"), {shape_.hidden, width}, 1);
  matrix(in_layer(layer, "ffn_up_shexp.weight"), {shape_.hidden, width}, 1);
  matrix(in_layer(layer, "ffn_down_shexp.weight"), {width, shape_.hidden},
         kDownGain * residual_gain());
}

void SynthBuilder::yarn_keys() {
  const SynthYarn& yarn = shape_.yarn;
  if (yarn.factor == 1) return;
  key("rope.scaling.type", std::string("yarn"));
  key("rope.scaling.factor", rounded(yarn.factor));
  key("rope.scaling.original_context_length", yarn.original_context);
  if (yarn.log_multiplier > 0) {
    key("rope.scaling.yarn_log_multiplier", rounded(yarn.log_multiplier));
  }
  if (yarn.beta_fast > 0) key("rope.scaling.yarn_beta_fast", rounded(yarn.beta_fast));
}

void SynthBuilder::norm(std::string name, int64_t length) {
  add({.name = std::move(name), .shape = {length}, .role = SynthRole::kNorm, .deviation = 0});
}

void SynthBuilder::matrix(std::string name, std::vector<int64_t> shape, double gain) {
  const double deviation = gain / root(shape[0]);
  const SynthRole role = shape.size() > 2 ? SynthRole::kExperts : SynthRole::kMatrix;
  add({.name = std::move(name), .shape = std::move(shape), .role = role, .deviation = deviation});
}

void SynthBuilder::per_head(std::string name, std::vector<int64_t> shape) {
  const double deviation = 1 / root(shape[0]);
  add({.name = std::move(name),
       .shape = std::move(shape),
       .role = SynthRole::kMatrix,
       .deviation = deviation});
}

void SynthBuilder::bias(std::string name, std::vector<int64_t> shape) {
  add({.name = std::move(name),
       .shape = std::move(shape),
       .role = SynthRole::kBias,
       .deviation = kBiasDeviation});
}

}  // namespace model
