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

Error not_float32(const TensorInfo& tensor) {
  return {Code::kUnsupported,
          cat("tensor '", tensor.name, "' is ", kernels::type_info(tensor.type).name,
              "; norm weights, biases and rope factors must be F32")};
}

}  // namespace

std::string in_layer(int layer, std::string_view name) {
  return cat("blk.", layer, '.', name);
}

std::string tensor_shape_text(const TensorInfo& tensor) {
  std::string out = "[";
  for (int i = 0; i < tensor.dimension_count; ++i) {
    out += cat(i == 0 ? "" : ", ", tensor.shape[i]);
  }
  return out + ']';
}

Error missing_tensor(std::string_view name) {
  return {Code::kBrokenFile, cat("tensor '", name, "' is missing")};
}

ModelBuilder::ModelBuilder(std::unique_ptr<const Directory> directory,
                           const Architecture& architecture)
    : architecture_(architecture), keys_(directory->metadata, std::string(architecture.name)) {
  for (const TensorInfo& tensor : directory->tensors) unused_[tensor.name] = &tensor;
  model_.directory = std::move(directory);
  model_.spec.architecture = std::string(architecture.name);
}

Result<Model> ModelBuilder::build() {
  RETURN_IF_ERROR(start());
  ASSIGN_OR_RETURN(const std::vector<bool> has_experts,
                   read_expert_layers(keys_, common_, architecture_));
  for (int layer = 0; layer < static_cast<int>(common_.layers); ++layer) {
    RETURN_IF_ERROR(architecture_.latent_attention ? latent_attention(layer)
                                                   : grouped_attention(layer));
    RETURN_IF_ERROR(has_experts[static_cast<size_t>(layer)] ? expert_feed_forward(layer)
                                                            : dense_feed_forward(layer));
  }
  RETURN_IF_ERROR(refuse_left_over());
  return std::move(model_);
}

const TensorInfo* ModelBuilder::peek(const std::string& name) const {
  const auto it = unused_.find(name);
  return it == unused_.end() ? nullptr : it->second;
}

const TensorInfo* ModelBuilder::take(const std::string& name) {
  const TensorInfo* tensor = peek(name);
  if (tensor != nullptr) unused_.erase(name);
  return tensor;
}

Result<const TensorInfo*> ModelBuilder::require(const std::string& name, const Shape& shape,
                                                std::string_view because) {
  const TensorInfo* tensor = take(name);
  if (tensor == nullptr) return missing_tensor(name);
  const auto& [length, rows, matrices, last] = tensor->shape;
  if (length != shape.length || rows != shape.rows || matrices != shape.matrices || last != 1) {
    std::string wanted = cat('[', shape.length);
    if (shape.rows != 1 || shape.matrices != 1) wanted += cat(", ", shape.rows);
    if (shape.matrices != 1) wanted += cat(", ", shape.matrices);
    return Error{Code::kBrokenFile,
                 cat("tensor '", name, "' has shape ", tensor_shape_text(*tensor), ", not ", wanted,
                     "] as ", because, " says")};
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
  if (!unused_.contains(name)) return static_cast<const TensorInfo*>(nullptr);
  return vector(name, length, because);
}

Result<const TensorInfo*> ModelBuilder::vector_if(Presence presence, const std::string& name,
                                                  int64_t length, std::string_view because) {
  switch (presence) {
    case Presence::kRequired: return vector(name, length, because);
    case Presence::kOptional: return optional_vector(name, length, because);
    case Presence::kNone: break;
  }
  return static_cast<const TensorInfo*>(nullptr);
}

Result<const TensorInfo*> ModelBuilder::vectors_if(Presence presence, const std::string& name,
                                                   const Shape& shape, std::string_view because) {
  const bool wanted = presence == Presence::kRequired ||
                      (presence == Presence::kOptional && unused_.contains(name));
  if (!wanted) return static_cast<const TensorInfo*>(nullptr);
  ASSIGN_OR_RETURN(const TensorInfo* tensor, require(name, shape, because));
  if (tensor->type != kernels::TensorType::kF32) return not_float32(*tensor);
  return tensor;
}

Status ModelBuilder::start() {
  ASSIGN_OR_RETURN(common_, read_common(keys_, architecture_));
  RETURN_IF_ERROR(refuse_unapplied(keys_, common_, architecture_));
  ModelSpec& spec = model_.spec;
  ASSIGN_OR_RETURN(spec.name, keys_.metadata().string_or("general.name", ""));
  spec.hidden = common_.hidden;
  spec.norm_epsilon = common_.norm_epsilon;
  spec.context = common_.context;
  RETURN_IF_ERROR(read_scales(keys_, architecture_, spec));
  ASSIGN_OR_RETURN(const std::vector<Attention> attention,
                   read_attention(keys_, common_, architecture_));
  spec.blocks.resize(attention.size());
  for (size_t i = 0; i < attention.size(); ++i) {
    spec.blocks[i].attention = attention[i];
    spec.blocks[i].activation = architecture_.activation;
  }
  model_.blocks.resize(attention.size());
  RETURN_IF_ERROR(bind_vocabulary());
  return bind_rope_factors();
}

Status ModelBuilder::bind_vocabulary() {
  ModelSpec& spec = model_.spec;
  const std::string hidden_key = keys_.name("embedding_length");
  const std::string embedding = "token_embd.weight";
  const TensorInfo* table = peek(embedding);
  if (table == nullptr) return missing_tensor(embedding);
  spec.vocabulary = table->shape[1];
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
  int64_t dims = 0;
  for (const Block& block : model_.spec.blocks) {
    if (dims == 0) dims = block.attention.rope.dims;
  }
  const std::string key = keys_.name("rope.dimension_count");
  if (!model_.spec.blocks.empty() &&
      model_.spec.blocks[0].attention.rope.scaling == RopeScaling::kLong) {
    ASSIGN_OR_RETURN(model_.rope_factors, vector("rope_factors_short.weight", dims / 2, key));
    ASSIGN_OR_RETURN(model_.rope_factors_long, vector("rope_factors_long.weight", dims / 2, key));
  } else {
    ASSIGN_OR_RETURN(model_.rope_factors, optional_vector("rope_freqs.weight", dims / 2, key));
  }
  if (model_.rope_factors == nullptr) return {};
  for (const Block& block : model_.spec.blocks) {
    if (block.attention.rope.dims != 0 && block.attention.rope.dims != dims) {
      return Error{Code::kUnsupported, cat("tensor '", model_.rope_factors->name,
                                           "' goes with layers of different rope dimensions")};
    }
  }
  return {};
}

Status ModelBuilder::refuse_left_over() {
  // Layers that predict further tokens are known, and not used.
  for (int64_t layer = common_.layers; layer < common_.file_layers; ++layer) {
    const std::string prefix = in_layer(static_cast<int>(layer), "");
    std::erase_if(unused_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  }
  if (unused_.empty()) return {};
  return Error{Code::kUnsupported,
               cat("tensor '", printable(unused_.begin()->first), "' is not part of architecture ",
                   model_.spec.architecture, " as this program knows it",
                   unused_.size() > 1 ? cat(" (and ", unused_.size() - 1, " more)") : "")};
}

}  // namespace model
