// Attention tensors of one layer: per KV head, or through a latent.
#include "base/cat.h"
#include "model/model_builder.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

}  // namespace

Status ModelBuilder::grouped_attention(int layer) {
  const Attention& spec = spec_of(layer).attention;
  BlockTensors& block = tensors_of(layer);
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim;
  const int64_t k_rows = int64_t{spec.kv_heads} * spec.head_dim;
  const int64_t v_rows = int64_t{spec.kv_heads} * spec.value_dim;
  const int64_t joined = int64_t{spec.heads} * spec.value_dim;
  const std::string of_layer = cat(" of layer ", layer);
  const std::string hidden_key = keys_.name("embedding_length");
  const std::string heads_key =
      cat(keys_.name("attention.head_count"), " (", spec.heads, ')', of_layer);
  const std::string kv_key =
      cat(keys_.name("attention.head_count_kv"), " (", spec.kv_heads, ')', of_layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  const auto bias = [&](std::string_view suffix, int64_t length, const std::string& because) {
    return vector_if(architecture_.qkv_bias, name(suffix), length, because);
  };

  ASSIGN_OR_RETURN(block.attention_norm, vector(name("attn_norm.weight"), hidden(), hidden_key));
  if (unused_.contains(name("attn_qkv.weight"))) {
    ASSIGN_OR_RETURN(block.qkv,
                     require(name("attn_qkv.weight"), {hidden(), q_rows + k_rows + v_rows},
                             cat(heads_key, " with its KV heads (", spec.kv_heads, ')')));
  } else {
    ASSIGN_OR_RETURN(block.q, require(name("attn_q.weight"), {hidden(), q_rows}, heads_key));
    ASSIGN_OR_RETURN(block.k, require(name("attn_k.weight"), {hidden(), k_rows}, kv_key));
    ASSIGN_OR_RETURN(block.v, require(name("attn_v.weight"), {hidden(), v_rows}, kv_key));
  }
  ASSIGN_OR_RETURN(block.attention_output,
                   require(name("attn_output.weight"), {joined, hidden()}, heads_key));
  ASSIGN_OR_RETURN(block.q_bias, bias("attn_q.bias", q_rows, heads_key));
  ASSIGN_OR_RETURN(block.k_bias, bias("attn_k.bias", k_rows, kv_key));
  ASSIGN_OR_RETURN(block.v_bias, bias("attn_v.bias", v_rows, kv_key));
  ASSIGN_OR_RETURN(
      block.attention_output_bias,
      vector_if(architecture_.output_bias, name("attn_output.bias"), hidden(), hidden_key));
  ASSIGN_OR_RETURN(block.sinks, vector_if(architecture_.sinks, name("attn_sinks.weight"),
                                          spec.heads, heads_key));
  const bool normed = architecture_.qk_norm == Presence::kRequired ||
                      (architecture_.qk_norm == Presence::kOptional &&
                       (unused_.contains(name("attn_q_norm.weight")) ||
                        unused_.contains(name("attn_k_norm.weight"))));
  if (!normed) return {};
  return qk_norm(layer);
}

Result<QkNorm> ModelBuilder::norm_kind(const std::string& name, int64_t head_dim, int64_t heads) {
  const TensorInfo* tensor = peek(name);
  if (tensor == nullptr) return missing_tensor(name);
  const int64_t length = tensor->row_length();
  if (tensor->row_count() == 1 && length == head_dim) return QkNorm::kPerHead;
  if (tensor->row_count() == 1 && length == head_dim * heads) return QkNorm::kFullWidth;
  return Error{Code::kBrokenFile,
               cat("tensor '", name, "' has shape ", tensor_shape_text(*tensor), ", neither [",
                   head_dim, "] (one head) nor [", head_dim * heads, "] (all heads)")};
}

Status ModelBuilder::qk_norm(int layer) {
  Attention& spec = spec_of(layer).attention;
  BlockTensors& block = tensors_of(layer);
  const std::string q = in_layer(layer, "attn_q_norm.weight");
  const std::string k = in_layer(layer, "attn_k_norm.weight");
  ASSIGN_OR_RETURN(spec.qk_norm, norm_kind(q, spec.head_dim, spec.heads));
  ASSIGN_OR_RETURN(const QkNorm k_kind, norm_kind(k, spec.head_dim, spec.kv_heads));
  // With a single KV head both kinds have the same length, so the queries decide.
  if (k_kind != spec.qk_norm && spec.kv_heads > 1) {
    return Error{Code::kBrokenFile,
                 cat("tensors '", q, "' and '", k, "' disagree: one is per head, one is not")};
  }
  const bool full = spec.qk_norm == QkNorm::kFullWidth;
  const std::string_view because = "attention.key_length";
  const int64_t width = spec.head_dim;
  ASSIGN_OR_RETURN(block.q_norm, vector(q, full ? width * spec.heads : width, because));
  ASSIGN_OR_RETURN(block.k_norm, vector(k, full ? width * spec.kv_heads : width, because));
  return {};
}

Status ModelBuilder::latent_attention(int layer) {
  const Attention& spec = spec_of(layer).attention;
  const Latent& latent = *spec.latent;
  BlockTensors& block = tensors_of(layer);
  const std::string hidden_key = keys_.name("embedding_length");
  const std::string heads_key =
      cat(keys_.name("attention.head_count"), " (", spec.heads, ") of layer ", layer);
  const std::string query_key =
      cat(keys_.name("attention.q_lora_rank"), " (", latent.query_rank, ")");
  const std::string latent_key = cat(keys_.name("attention.kv_lora_rank"), " (", latent.rank, ")");
  const int64_t q_rows = int64_t{spec.heads} * spec.query_dim();
  const int64_t joined = int64_t{spec.heads} * latent.value_dim;
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };

  ASSIGN_OR_RETURN(block.attention_norm, vector(name("attn_norm.weight"), hidden(), hidden_key));
  if (latent.query_rank == 0) {
    ASSIGN_OR_RETURN(block.q, require(name("attn_q.weight"), {hidden(), q_rows}, heads_key));
  } else {
    const int64_t rank = latent.query_rank;
    ASSIGN_OR_RETURN(block.q_down, require(name("attn_q_a.weight"), {hidden(), rank}, query_key));
    ASSIGN_OR_RETURN(block.q_down_norm, vector(name("attn_q_a_norm.weight"), rank, query_key));
    ASSIGN_OR_RETURN(block.q_up, require(name("attn_q_b.weight"), {rank, q_rows}, heads_key));
  }
  ASSIGN_OR_RETURN(block.kv_down, require(name("attn_kv_a_mqa.weight"),
                                          {hidden(), int64_t{spec.head_dim}}, latent_key));
  ASSIGN_OR_RETURN(block.kv_down_norm,
                   vector(name("attn_kv_a_norm.weight"), latent.rank, latent_key));
  ASSIGN_OR_RETURN(block.attention_output,
                   require(name("attn_output.weight"), {joined, hidden()}, heads_key));
  return latent_projections(layer);
}

// Keys and values of a head from the latent: two tensors with a matrix per head, or one with the
// rows of each head's key and then of its value. A file with both holds the same weights twice.
Status ModelBuilder::latent_projections(int layer) {
  const Attention& spec = spec_of(layer).attention;
  const Latent& latent = *spec.latent;
  BlockTensors& block = tensors_of(layer);
  const std::string heads_key =
      cat(keys_.name("attention.head_count"), " (", spec.heads, ") of layer ", layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  const bool per_head =
      unused_.contains(name("attn_k_b.weight")) || unused_.contains(name("attn_v_b.weight"));
  if (!per_head || unused_.contains(name("attn_kv_b.weight"))) {
    const int64_t rows = int64_t{spec.heads} * (latent.plain_dim + latent.value_dim);
    ASSIGN_OR_RETURN(const TensorInfo* joint,
                     require(name("attn_kv_b.weight"), {latent.rank, rows}, heads_key));
    if (!per_head) block.kv_up = joint;
  }
  if (!per_head) return {};
  ASSIGN_OR_RETURN(block.k_up, require(name("attn_k_b.weight"),
                                       {latent.plain_dim, latent.rank, spec.heads}, heads_key));
  ASSIGN_OR_RETURN(block.v_up, require(name("attn_v_b.weight"),
                                       {latent.rank, latent.value_dim, spec.heads}, heads_key));
  return {};
}

}  // namespace model
