// Feed-forward tensors of one layer: dense, or experts with what all tokens share.
#include "base/cat.h"
#include "model/model_builder.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

constexpr int64_t kWidthMax = 1 << 24;

}  // namespace

Result<int64_t> ModelBuilder::width_of_layer(const std::string& key, int layer) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> widths,
                   keys_.metadata().per_layer(key, common_.file_layers, 1, kWidthMax));
  return widths[static_cast<size_t>(layer)];
}

Status ModelBuilder::dense_feed_forward(int layer) {
  Block& spec = spec_of(layer);
  BlockTensors& block = tensors_of(layer);
  const std::string key = keys_.name("feed_forward_length");
  ASSIGN_OR_RETURN(spec.dense_width, width_of_layer(key, layer));
  const Shape inner = {.length = hidden(), .rows = spec.dense_width};
  const Shape outer = {.length = spec.dense_width, .rows = hidden()};
  ASSIGN_OR_RETURN(block.ffn_norm, vector(in_layer(layer, architecture_.ffn_norm), hidden(),
                                          keys_.name("embedding_length")));
  ASSIGN_OR_RETURN(block.gate, require(in_layer(layer, "ffn_gate.weight"), inner, key));
  ASSIGN_OR_RETURN(block.up, require(in_layer(layer, "ffn_up.weight"), inner, key));
  ASSIGN_OR_RETURN(block.down, require(in_layer(layer, "ffn_down.weight"), outer, key));
  return {};
}

Result<int64_t> ModelBuilder::expert_width(int layer, const TensorInfo& down) {
  const int64_t of_tensor = down.row_length();
  std::string key = keys_.name("expert_feed_forward_length");
  if (keys_.metadata().find(key) == nullptr) {
    key = keys_.name("feed_forward_length");
    const bool applies =
        architecture_.experts.width_from_feed_forward && keys_.metadata().find(key) != nullptr;
    if (!applies) return of_tensor;
  }
  ASSIGN_OR_RETURN(const int64_t width, width_of_layer(key, layer));
  if (width != of_tensor) {
    return Error{Code::kBrokenFile, cat("metadata key '", key, "' is ", width, " but tensor '",
                                        down.name, "' has experts of width ", of_tensor)};
  }
  return width;
}

Status ModelBuilder::expert_feed_forward(int layer) {
  BlockTensors& block = tensors_of(layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  ASSIGN_OR_RETURN(Experts experts, read_experts(keys_, architecture_));
  const bool apart = unused_.contains(name("ffn_down.0.weight"));  // a tensor per expert
  const std::string down_name = name(apart ? "ffn_down.0.weight" : "ffn_down_exps.weight");
  const TensorInfo* down = peek(down_name);
  if (down == nullptr) return missing_tensor(down_name);
  ASSIGN_OR_RETURN(experts.width, expert_width(layer, *down));

  const std::string because = cat(keys_.name("expert_count"), " (", experts.count,
                                  ") and the expert width (", experts.width, ')');
  ASSIGN_OR_RETURN(block.ffn_norm,
                   vector(name(architecture_.ffn_norm), hidden(), keys_.name("embedding_length")));
  ASSIGN_OR_RETURN(block.router, require(name("ffn_gate_inp.weight"),
                                         {.length = hidden(), .rows = experts.count}, because));
  ASSIGN_OR_RETURN(block.selection_bias,
                   vector_if(architecture_.experts.selection_bias, name("exp_probs_b.bias"),
                             experts.count, keys_.name("expert_count")));
  RETURN_IF_ERROR(apart ? expert_parts(layer, experts) : expert_tensors(layer, experts));
  RETURN_IF_ERROR(expert_biases(layer, experts));
  RETURN_IF_ERROR(shared_experts(layer, experts));
  spec_of(layer).experts = experts;
  return {};
}

// All experts of a matrix in one tensor; gate and up perhaps together.
Status ModelBuilder::expert_tensors(int layer, const Experts& experts) {
  BlockTensors& block = tensors_of(layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  const std::string because = cat(keys_.name("expert_count"), " (", experts.count,
                                  ") and the expert width (", experts.width, ')');
  const Shape inner = {.length = hidden(), .rows = experts.width, .matrices = experts.count};
  const Shape both = {.length = hidden(), .rows = 2 * experts.width, .matrices = experts.count};
  const Shape outer = {.length = experts.width, .rows = hidden(), .matrices = experts.count};
  if (unused_.contains(name("ffn_gate_up_exps.weight"))) {
    ASSIGN_OR_RETURN(block.gate_up, require(name("ffn_gate_up_exps.weight"), both, because));
  } else {
    ASSIGN_OR_RETURN(block.gate, require(name("ffn_gate_exps.weight"), inner, because));
    ASSIGN_OR_RETURN(block.up, require(name("ffn_up_exps.weight"), inner, because));
  }
  ASSIGN_OR_RETURN(block.down, require(name("ffn_down_exps.weight"), outer, because));
  return {};
}

Status ModelBuilder::expert_biases(int layer, const Experts& experts) {
  const Presence presence = architecture_.experts.biases;
  BlockTensors& block = tensors_of(layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  const std::string because = cat(keys_.name("expert_count"), " (", experts.count,
                                  ") and the expert width (", experts.width, ')');
  const Shape inner = {.length = experts.width, .rows = experts.count};
  const Shape outer = {.length = hidden(), .rows = experts.count};
  ASSIGN_OR_RETURN(block.router_bias, vector_if(presence, name("ffn_gate_inp.bias"), experts.count,
                                                keys_.name("expert_count")));
  ASSIGN_OR_RETURN(block.gate_bias,
                   vectors_if(presence, name("ffn_gate_exps.bias"), inner, because));
  ASSIGN_OR_RETURN(block.up_bias, vectors_if(presence, name("ffn_up_exps.bias"), inner, because));
  ASSIGN_OR_RETURN(block.down_bias,
                   vectors_if(presence, name("ffn_down_exps.bias"), outer, because));
  return {};
}

// One tensor per expert, as files of the first months of Mixtral have it.
Status ModelBuilder::expert_parts(int layer, const Experts& experts) {
  BlockTensors& block = tensors_of(layer);
  const std::string because = cat("the expert width (", experts.width, ')');
  const auto bind = [&](std::string_view matrix, const Shape& shape,
                        std::vector<const TensorInfo*>& parts) -> Status {
    for (int e = 0; e < experts.count; ++e) {
      const std::string name = in_layer(layer, cat(matrix, '.', e, ".weight"));
      ASSIGN_OR_RETURN(const TensorInfo* part, require(name, shape, because));
      parts.push_back(part);
      if (part->type == parts[0]->type) continue;
      return Error{Code::kUnsupported,
                   cat("tensor '", name, "' is ", kernels::type_info(part->type).name, " but '",
                       parts[0]->name, "' ", kernels::type_info(parts[0]->type).name,
                       "; experts of a layer must be of one type")};
    }
    return {};
  };
  const Shape inner = {.length = hidden(), .rows = experts.width};
  RETURN_IF_ERROR(bind("ffn_gate", inner, block.gate_parts));
  RETURN_IF_ERROR(bind("ffn_up", inner, block.up_parts));
  RETURN_IF_ERROR(bind("ffn_down", {.length = experts.width, .rows = hidden()}, block.down_parts));
  block.gate = block.gate_parts[0];
  block.up = block.up_parts[0];
  block.down = block.down_parts[0];
  return {};
}

// Their own width, else their number times the width of one; some families have neither key.
Result<int64_t> ModelBuilder::shared_width(int layer, const Experts& experts) {
  const ExpertRule& rule = architecture_.experts;
  ASSIGN_OR_RETURN(const int64_t width,
                   keys_.metadata().integer_or(keys_.name("expert_shared_feed_forward_length"), 0,
                                               0, kWidthMax));
  if (width > 0) return width;
  ASSIGN_OR_RETURN(const int64_t count,
                   keys_.metadata().integer_or(keys_.name("expert_shared_count"), rule.shared_count,
                                               0, kWidthMax));
  if (count * experts.width > kWidthMax) {
    return Error{Code::kBrokenFile,
                 cat("metadata key '", keys_.name("expert_shared_count"), "' is ", count,
                     ", too many for experts of width ", experts.width)};
  }
  if (count > 0) return count * experts.width;
  if (!rule.shared_width_from_feed_forward) return 0;
  return width_of_layer(keys_.name("feed_forward_length"), layer);
}

Status ModelBuilder::shared_experts(int layer, Experts& experts) {
  if (!architecture_.has(kSharedCount)) return {};
  ASSIGN_OR_RETURN(const int64_t width, shared_width(layer, experts));
  if (width == 0) return {};
  BlockTensors& block = tensors_of(layer);
  const auto name = [&](std::string_view suffix) { return in_layer(layer, suffix); };
  const std::string because = cat("the width of the shared experts (", width, ')');
  const Shape inner = {.length = hidden(), .rows = width};
  const Shape outer = {.length = width, .rows = hidden()};
  ASSIGN_OR_RETURN(block.shared_gate, require(name("ffn_gate_shexp.weight"), inner, because));
  ASSIGN_OR_RETURN(block.shared_up, require(name("ffn_up_shexp.weight"), inner, because));
  ASSIGN_OR_RETURN(block.shared_down, require(name("ffn_down_shexp.weight"), outer, because));
  if (architecture_.experts.shared_router == Presence::kRequired) {
    ASSIGN_OR_RETURN(block.shared_router,
                     require(name("ffn_gate_inp_shexp.weight"), {.length = hidden()},
                             keys_.name("embedding_length")));
  }
  experts.shared_width = width;
  experts.weighs_shared = block.shared_router != nullptr;
  return {};
}

}  // namespace model
