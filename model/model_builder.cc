#include "model/model_builder.h"

#include <limits>

#include "base/cat.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

constexpr int64_t kVocabularyMax = std::numeric_limits<int32_t>::max();  // ids are int32_t
constexpr int64_t kWidthMax = 1 << 24;

std::string in_layer(int layer, std::string_view name) {
  return cat("blk.", layer, '.', name);
}

std::string shape_text(const TensorInfo& tensor) {
  std::string out = "[";
  for (int i = 0; i < tensor.dimension_count; ++i) {
    out += cat(i == 0 ? "" : ", ", tensor.shape[i]);
  }
  return out + ']';
}

Error missing(std::string_view name) {
  return {Code::kBrokenFile, cat("tensor '", name, "' is missing")};
}

Error not_float32(const TensorInfo& tensor) {
  return {Code::kUnsupported,
          cat("tensor '", tensor.name, "' is ", kernels::type_info(tensor.type).name,
              "; norm weights, biases and rope factors must be F32")};
}

}  // namespace

ModelBuilder::ModelBuilder(std::unique_ptr<const Directory> directory, std::string architecture)
    : keys_(directory->metadata, architecture) {
  for (const TensorInfo& tensor : directory->tensors) unused_[tensor.name] = &tensor;
  model_.directory = std::move(directory);
  model_.spec.architecture = std::move(architecture);
}

const TensorInfo* ModelBuilder::take(const std::string& name) {
  const auto it = unused_.find(name);
  if (it == unused_.end()) return nullptr;
  const TensorInfo* tensor = it->second;
  unused_.erase(it);
  return tensor;
}

Result<const TensorInfo*> ModelBuilder::require(const std::string& name, const Shape& shape,
                                                std::string_view because) {
  const TensorInfo* tensor = take(name);
  if (tensor == nullptr) return missing(name);
  const auto& [length, rows, matrices, last] = tensor->shape;
  if (length != shape.length || rows != shape.rows || matrices != shape.matrices || last != 1) {
    std::string wanted = cat('[', shape.length);
    if (shape.rows != 1 || shape.matrices != 1) wanted += cat(", ", shape.rows);
    if (shape.matrices != 1) wanted += cat(", ", shape.matrices);
    return Error{Code::kBrokenFile, cat("tensor '", name, "' has shape ", shape_text(*tensor),
                                        ", not ", wanted, "] as ", because, " says")};
  }
  return tensor;
}

Result<const TensorInfo*> ModelBuilder::vector(const std::string& name, int64_t length,
                                               std::string_view because) {
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, {.length = length}, because));
  if (tensor->type != kernels::TensorType::kF32) return not_float32(*tensor);
  return tensor;
}

Result<const TensorInfo*> ModelBuilder::optional_vector(const std::string& name, int64_t length,
                                                        std::string_view because) {
  if (!unused_.contains(name)) return nullptr;
  return vector(name, length, because);
}

Status ModelBuilder::start(RopeStyle rope_style) {
  ASSIGN_OR_RETURN(const CommonNumbers common, read_common(keys_));
  RETURN_IF_ERROR(refuse_unapplied(keys_, common));
  ModelSpec& spec = model_.spec;
  ASSIGN_OR_RETURN(spec.name, keys_.metadata().string_or("general.name", ""));
  spec.hidden = common.hidden;
  spec.norm_epsilon = common.norm_epsilon;
  spec.context = common.context;
  ASSIGN_OR_RETURN(const std::vector<Attention> attention,
                   read_attention(keys_, common, rope_style));
  spec.blocks.resize(attention.size());
  for (size_t i = 0; i < attention.size(); ++i) spec.blocks[i].attention = attention[i];
  model_.blocks.resize(attention.size());
  RETURN_IF_ERROR(bind_vocabulary());
  return bind_rope_factors();
}

Status ModelBuilder::bind_vocabulary() {
  ModelSpec& spec = model_.spec;
  const std::string hidden_key = keys_.name("embedding_length");
  const std::string embedding = "token_embd.weight";
  const auto it = unused_.find(embedding);
  if (it == unused_.end()) return missing(embedding);
  spec.vocabulary = it->second->shape[1];
  if (spec.vocabulary > kVocabularyMax) {
    return Error{Code::kBrokenFile, cat("tensor '", embedding, "' has ", spec.vocabulary,
                                        " rows; token ids have 31 bits")};
  }
  const Shape shape = {.length = spec.hidden, .rows = spec.vocabulary};
  ASSIGN_OR_RETURN(model_.token_embedding, require(embedding, shape, hidden_key));
  ASSIGN_OR_RETURN(model_.output_norm, vector("output_norm.weight", spec.hidden, hidden_key));
  model_.output = model_.token_embedding;
  if (unused_.contains("output.weight")) {
    ASSIGN_OR_RETURN(model_.output,
                     require("output.weight", shape, cat(hidden_key, " and '", embedding, "'")));
  }

  spec.token_count = spec.vocabulary;
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (keys_.metadata().find(kTokens) == nullptr) return {};
  const std::vector<std::string>* tokens = keys_.metadata().strings(kTokens);
  if (tokens == nullptr || tokens->empty()) {
    return Error{Code::kBrokenFile,
                 cat("metadata key '", kTokens, "' is not a list of at least one string")};
  }
  spec.token_count = static_cast<int64_t>(tokens->size());
  if (spec.token_count > spec.vocabulary) {
    return Error{Code::kBrokenFile,
                 cat("metadata key '", kTokens, "' has ", spec.token_count, " entries but tensor '",
                     embedding, "' only ", spec.vocabulary, " rows")};
  }
  return {};
}

Status ModelBuilder::bind_rope_factors() {
  const int64_t dims = model_.spec.blocks[0].attention.rope.dims;
  ASSIGN_OR_RETURN(model_.rope_factors, optional_vector("rope_freqs.weight", dims / 2,
                                                        keys_.name("rope.dimension_count")));
  if (model_.rope_factors == nullptr) return {};
  for (const Block& block : model_.spec.blocks) {
    if (block.attention.rope.dims != dims) {
      return Error{Code::kUnsupported,
                   "tensor 'rope_freqs.weight' goes with layers of different rope dimensions"};
    }
  }
  return {};
}

Status ModelBuilder::attention(int layer) {
  const Attention& spec = model_.spec.blocks[static_cast<size_t>(layer)].attention;
  BlockTensors& block = model_.blocks[static_cast<size_t>(layer)];
  const int64_t hidden = model_.spec.hidden;
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

  ASSIGN_OR_RETURN(block.attention_norm, vector(name("attn_norm.weight"), hidden, hidden_key));
  ASSIGN_OR_RETURN(block.q, require(name("attn_q.weight"), {hidden, q_rows}, heads_key));
  ASSIGN_OR_RETURN(block.k, require(name("attn_k.weight"), {hidden, k_rows}, kv_key));
  ASSIGN_OR_RETURN(block.v, require(name("attn_v.weight"), {hidden, v_rows}, kv_key));
  ASSIGN_OR_RETURN(block.attention_output,
                   require(name("attn_output.weight"), {joined, hidden}, heads_key));
  ASSIGN_OR_RETURN(block.q_bias, optional_vector(name("attn_q.bias"), q_rows, heads_key));
  ASSIGN_OR_RETURN(block.k_bias, optional_vector(name("attn_k.bias"), k_rows, kv_key));
  ASSIGN_OR_RETURN(block.v_bias, optional_vector(name("attn_v.bias"), v_rows, kv_key));
  ASSIGN_OR_RETURN(block.attention_output_bias,
                   optional_vector(name("attn_output.bias"), hidden, hidden_key));
  return {};
}

Result<QkNorm> ModelBuilder::norm_kind(const std::string& name, int64_t head_dim, int64_t heads) {
  const auto it = unused_.find(name);
  if (it == unused_.end()) return missing(name);
  const int64_t length = it->second->row_length();
  if (it->second->row_count() == 1 && length == head_dim) return QkNorm::kPerHead;
  if (it->second->row_count() == 1 && length == head_dim * heads) return QkNorm::kFullWidth;
  return Error{Code::kBrokenFile,
               cat("tensor '", name, "' has shape ", shape_text(*it->second), ", neither [",
                   head_dim, "] (one head) nor [", head_dim * heads, "] (all heads)")};
}

Status ModelBuilder::qk_norm(int layer) {
  Attention& spec = model_.spec.blocks[static_cast<size_t>(layer)].attention;
  BlockTensors& block = model_.blocks[static_cast<size_t>(layer)];
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

Status ModelBuilder::dense_feed_forward(int layer) {
  Block& spec = model_.spec.blocks[static_cast<size_t>(layer)];
  BlockTensors& block = model_.blocks[static_cast<size_t>(layer)];
  const int64_t hidden = model_.spec.hidden;
  const std::string key = keys_.name("feed_forward_length");
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys_.metadata().per_layer(key, layer_count(), 1, kWidthMax));
  spec.dense_width = widths[static_cast<size_t>(layer)];
  const Shape inner = {.length = hidden, .rows = spec.dense_width};
  const Shape outer = {.length = spec.dense_width, .rows = hidden};
  ASSIGN_OR_RETURN(block.ffn_norm, vector(in_layer(layer, "ffn_norm.weight"), hidden,
                                          keys_.name("embedding_length")));
  ASSIGN_OR_RETURN(block.gate, require(in_layer(layer, "ffn_gate.weight"), inner, key));
  ASSIGN_OR_RETURN(block.up, require(in_layer(layer, "ffn_up.weight"), inner, key));
  ASSIGN_OR_RETURN(block.down, require(in_layer(layer, "ffn_down.weight"), outer, key));
  return {};
}

Result<int64_t> ModelBuilder::expert_width(int layer, const ExpertRule& rule,
                                           const TensorInfo& down) {
  const int64_t of_tensor = down.row_length();
  std::string key = keys_.name("expert_feed_forward_length");
  if (keys_.metadata().find(key) == nullptr) {
    key = keys_.name("feed_forward_length");
    const bool applies = rule.width_from_feed_forward && keys_.metadata().find(key) != nullptr;
    if (!applies) return of_tensor;
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys_.metadata().per_layer(key, layer_count(), 1, kWidthMax));
  const int64_t width = widths[static_cast<size_t>(layer)];
  if (width != of_tensor) {
    return Error{Code::kBrokenFile, cat("metadata key '", key, "' is ", width, " but tensor '",
                                        down.name, "' has experts of width ", of_tensor)};
  }
  return width;
}

Status ModelBuilder::expert_feed_forward(int layer, const ExpertRule& rule) {
  BlockTensors& block = model_.blocks[static_cast<size_t>(layer)];
  const int64_t hidden = model_.spec.hidden;
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  ASSIGN_OR_RETURN(Experts experts, read_experts(keys_, rule.normalise_weights));
  if (unused_.contains(name("ffn_gate.0.weight"))) {
    return Error{Code::kUnsupported, cat("tensor '", name("ffn_gate.0.weight"),
                                         "' holds a single expert, as old files do; convert the "
                                         "model again with a current converter")};
  }
  const auto down = unused_.find(name("ffn_down_exps.weight"));
  if (down == unused_.end()) return missing(name("ffn_down_exps.weight"));
  ASSIGN_OR_RETURN(experts.width, expert_width(layer, rule, *down->second));

  const std::string because = cat(keys_.name("expert_count"), " (", experts.count,
                                  ") and the expert width (", experts.width, ')');
  const Shape inner = {.length = hidden, .rows = experts.width, .matrices = experts.count};
  const Shape both = {.length = hidden, .rows = 2 * experts.width, .matrices = experts.count};
  const Shape outer = {.length = experts.width, .rows = hidden, .matrices = experts.count};
  ASSIGN_OR_RETURN(block.ffn_norm,
                   vector(name("ffn_norm.weight"), hidden, keys_.name("embedding_length")));
  ASSIGN_OR_RETURN(block.router, require(name("ffn_gate_inp.weight"),
                                         {.length = hidden, .rows = experts.count}, because));
  if (unused_.contains(name("ffn_gate_up_exps.weight"))) {
    ASSIGN_OR_RETURN(block.gate_up, require(name("ffn_gate_up_exps.weight"), both, because));
  } else {
    ASSIGN_OR_RETURN(block.gate, require(name("ffn_gate_exps.weight"), inner, because));
    ASSIGN_OR_RETURN(block.up, require(name("ffn_up_exps.weight"), inner, because));
  }
  ASSIGN_OR_RETURN(block.down, require(name("ffn_down_exps.weight"), outer, because));
  model_.spec.blocks[static_cast<size_t>(layer)].experts = experts;
  return {};
}

Result<Model> ModelBuilder::finish() {
  if (!unused_.empty()) {
    return Error{
        Code::kUnsupported,
        cat("tensor '", printable(unused_.begin()->first), "' is not part of architecture ",
            model_.spec.architecture, " as this program knows it",
            unused_.size() > 1 ? cat(" (and ", unused_.size() - 1, " more)") : "")};
  }
  return std::move(model_);
}

}  // namespace model
