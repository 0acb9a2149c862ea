#include "engine/weights.h"

#include <cstring>

#include "engine/buffer.h"

namespace engine {

namespace {

// Fills a WeightMap slice by slice.
class MapBuilder {
 public:
  MapBuilder(const kernels::Ops& ops, WeightMap& map) : ops_(ops), map_(map) {}

  // Rows of a tensor that is one matrix.
  int add_rows(const model::TensorInfo* tensor, plan::Range rows) {
    if (tensor == nullptr) return -1;
    return add({.tensor = tensor, .matrix_rows = tensor->row_count(), .rows = rows});
  }

  // The same rows of several neighbouring matrices of `matrix_rows` rows.
  int add_matrices(const model::TensorInfo* tensor, plan::Range matrices, int64_t matrix_rows,
                   plan::Range rows) {
    if (tensor == nullptr) return -1;
    return add({.tensor = tensor,
                .matrix_begin = matrices.begin,
                .matrix_count = matrices.size(),
                .matrix_rows = matrix_rows,
                .rows = rows});
  }

  // The same rows of all experts, or of those that a rank owns.
  struct ExpertTensor {
    const model::TensorInfo* tensor;
    // If each expert is a tensor of its own: all of them.
    const std::vector<const model::TensorInfo*>* parts = nullptr;
    int64_t count = 0;
    const std::vector<int32_t>* owned = nullptr;
  };
  int add_experts(const ExpertTensor& experts, plan::Range rows) {
    const model::TensorInfo* tensor = experts.tensor;
    if (tensor == nullptr) return -1;
    WeightSlice slice{.tensor = tensor,
                      .matrix_count = experts.count,
                      .matrix_rows = tensor->shape[1],
                      .rows = rows};
    if (experts.owned != nullptr) {
      slice.listed = *experts.owned;
      slice.matrix_count = static_cast<int64_t>(slice.listed.size());
    }
    if (experts.parts != nullptr && !experts.parts->empty()) slice.parts = experts.parts->data();
    return add(std::move(slice));
  }

  // A vector, or rows to be looked up one by one: as in the file, whole panels of plain rows.
  int add_plain(const model::TensorInfo* tensor, plan::Range rows) {
    if (tensor == nullptr) return -1;
    return add({.tensor = tensor, .matrix_rows = tensor->row_count(), .rows = rows},
               kernels::Layout::kRows);
  }
  int add_vector(const model::TensorInfo* tensor) { return add_plain(tensor, {0, 1}); }
  // All vectors of a tensor, one after the other: rows of floats fill their panels.
  int add_vectors(const model::TensorInfo* tensor) {
    return tensor == nullptr ? -1 : add_plain(tensor, {0, tensor->row_count()});
  }

  // The first `row_length` rows of neighbouring matrices, expanded and transposed. Rows of
  // quantised blocks cannot be transposed as they are, and float32 keeps every weight exact.
  int add_transposed(const model::TensorInfo* tensor, plan::Range matrices, int64_t matrix_rows,
                     int64_t row_length) {
    WeightSlice slice{.tensor = tensor,
                      .type = kernels::TensorType::kF32,
                      .row_length = row_length,
                      .matrix_begin = matrices.begin,
                      .matrix_count = matrices.size(),
                      .matrix_rows = matrix_rows,
                      .rows = {0, tensor->row_length()},
                      .transposed = true};
    const kernels::Layout layout = kernels::layout_for(slice.type, ops_);
    return place(std::move(slice), layout);
  }

 private:
  int add(WeightSlice slice) {
    const kernels::Layout layout = kernels::layout_for(slice.tensor->type, ops_);
    return add(std::move(slice), layout);
  }
  int add(WeightSlice slice, kernels::Layout layout) {
    slice.type = slice.tensor->type;
    slice.row_length = slice.tensor->row_length();
    return place(std::move(slice), layout);
  }
  int place(WeightSlice slice, kernels::Layout layout) {
    slice.layout = layout;
    slice.panel_bytes = kernels::panel_bytes(layout, slice.type, slice.row_length);
    const size_t panels =
        round_up(static_cast<size_t>(slice.rows.size()), kernels::kPanelRows) / kernels::kPanelRows;
    slice.matrix_bytes = panels * slice.panel_bytes;
    slice.offset = map_.bytes;
    map_.bytes += round_up(slice.bytes(), kSliceAlignment);
    map_.slices.push_back(std::move(slice));
    return static_cast<int>(map_.slices.size()) - 1;
  }

  const kernels::Ops& ops_;
  WeightMap& map_;
};

BlockSlices map_attention(const model::Block& block, const model::BlockTensors& tensors,
                          const plan::BlockShare& share, MapBuilder& builder) {
  const model::Attention& attention = block.attention;
  BlockSlices out;
  out.attention_norm = builder.add_vector(tensors.attention_norm);
  out.q_norm = builder.add_vector(tensors.q_norm);
  out.k_norm = builder.add_vector(tensors.k_norm);
  out.q_bias = builder.add_vector(tensors.q_bias);
  out.k_bias = builder.add_vector(tensors.k_bias);
  out.v_bias = builder.add_vector(tensors.v_bias);
  out.attention_output_bias = builder.add_vector(tensors.attention_output_bias);
  out.sinks = builder.add_vector(tensors.sinks);
  // Of a fused tensor the same rows, behind those of q, and of q and k.
  const bool fused = tensors.qkv != nullptr;
  const int64_t dim = attention.head_dim, value_dim = attention.value_dim;
  const int64_t k_first = fused ? attention.heads * dim : 0;
  const int64_t v_first = fused ? k_first + attention.kv_heads * dim : 0;
  out.q = builder.add_rows(fused ? tensors.qkv : tensors.q,
                           {share.heads.begin * dim, share.heads.end * dim});
  // One matrix per KV head, so that a head starts at a panel whatever its size.
  out.k = builder.add_matrices(fused ? tensors.qkv : tensors.k, share.kv_heads, dim,
                               {k_first, k_first + dim});
  out.v = builder.add_matrices(fused ? tensors.qkv : tensors.v, share.kv_heads, value_dim,
                               {v_first, v_first + value_dim});
  out.attention_output = builder.add_rows(tensors.attention_output, share.hidden);
  return out;
}

BlockSlices map_latent_attention(const model::Block& block, const model::BlockTensors& tensors,
                                 const plan::BlockShare& share, MapBuilder& builder) {
  const model::Attention& attention = block.attention;
  const model::Latent& latent = *attention.latent;
  const plan::Range q_rows{share.heads.begin * attention.query_dim(),
                           share.heads.end * attention.query_dim()};
  BlockSlices out;
  out.attention_norm = builder.add_vector(tensors.attention_norm);
  out.q_down_norm = builder.add_vector(tensors.q_down_norm);
  out.kv_down_norm = builder.add_vector(tensors.kv_down_norm);
  out.q_down = builder.add_rows(tensors.q_down, share.query_rank);
  out.kv_down = builder.add_rows(tensors.kv_down, share.latent);
  out.q = builder.add_rows(tensors.q, q_rows);
  out.q_up = builder.add_rows(tensors.q_up, q_rows);
  if (tensors.kv_up != nullptr) {
    const int64_t rows = latent.plain_dim + latent.value_dim;
    out.k_up = builder.add_transposed(tensors.kv_up, share.heads, rows, latent.plain_dim);
    out.v_up = builder.add_matrices(tensors.kv_up, share.heads, rows, {latent.plain_dim, rows});
  } else {
    out.k_up = builder.add_matrices(tensors.k_up, share.heads, latent.rank, {0, latent.rank});
    out.v_up =
        builder.add_matrices(tensors.v_up, share.heads, latent.value_dim, {0, latent.value_dim});
  }
  out.attention_output = builder.add_rows(tensors.attention_output, share.hidden);
  return out;
}

void map_feed_forward(const model::Block& block, const model::BlockTensors& tensors,
                      const plan::BlockShare& share, MapBuilder& builder, BlockSlices& out) {
  out.ffn_norm = builder.add_vector(tensors.ffn_norm);
  const int64_t width = block.experts ? block.experts->width : block.dense_width;
  if (block.experts) out.router = builder.add_rows(tensors.router, share.experts);
  const auto experts = [&](const model::TensorInfo* tensor,
                           const std::vector<const model::TensorInfo*>* parts) {
    return MapBuilder::ExpertTensor{.tensor = tensor,
                                    .parts = parts,
                                    .count = block.experts ? block.experts->count : 1,
                                    .owned = share.whole_experts ? &share.owned : nullptr};
  };
  if (tensors.gate_up != nullptr) {
    const auto fused = experts(tensors.gate_up, nullptr);
    out.gate = builder.add_experts(fused, share.width);
    out.up = builder.add_experts(fused, {width + share.width.begin, width + share.width.end});
  } else {
    out.gate = builder.add_experts(experts(tensors.gate, &tensors.gate_parts), share.width);
    out.up = builder.add_experts(experts(tensors.up, &tensors.up_parts), share.width);
  }
  const auto down = experts(tensors.down, &tensors.down_parts);
  out.down = builder.add_experts(
      down, share.whole_experts ? plan::Range{0, tensors.down->shape[1]} : share.hidden);
  out.selection_bias = builder.add_vector(tensors.selection_bias);
  out.router_bias = builder.add_vector(tensors.router_bias);
  out.gate_bias = builder.add_vectors(tensors.gate_bias);
  out.up_bias = builder.add_vectors(tensors.up_bias);
  out.down_bias = builder.add_vectors(tensors.down_bias);
  out.shared_router = builder.add_plain(tensors.shared_router, share.shared_router);
  out.shared_gate = builder.add_rows(tensors.shared_gate, share.shared_width);
  out.shared_up = builder.add_rows(tensors.shared_up, share.shared_width);
  out.shared_down = builder.add_rows(tensors.shared_down, share.hidden);
}

}  // namespace

std::vector<std::byte> transposed_rows(kernels::TensorType type, std::span<const std::byte> rows,
                                       int64_t row_length) {
  const auto row_bytes = static_cast<size_t>(kernels::row_bytes(type, row_length));
  const size_t count = rows.size() / row_bytes, length = as_size(row_length);
  std::vector<float> row(length);
  std::vector<std::byte> out(count * length * sizeof(float));
  for (size_t r = 0; r < count; r++) {
    kernels::dequantise_row(type, rows.data() + r * row_bytes, row_length, row.data());
    for (size_t i = 0; i < length; i++) {
      std::memcpy(out.data() + (i * count + r) * sizeof(float), &row[i], sizeof(float));
    }
  }
  return out;
}

WeightMap map_weights(const model::Model& model, const plan::RankShare& share,
                      const kernels::Ops& ops) {
  WeightMap map;
  MapBuilder builder(ops, map);
  // Looked up row by row, so plain rows. A tied output matrix is held a second time, as panels,
  // where its type has a fast path: a product over plain rows would be slow for every token.
  map.token_embedding = builder.add_plain(model.token_embedding, share.vocabulary);
  map.output_norm = builder.add_vector(model.output_norm);
  const bool shared = model.output == model.token_embedding &&
                      kernels::layout_for(model.output->type, ops) == kernels::Layout::kRows;
  map.output = shared ? map.token_embedding : builder.add_rows(model.output, share.vocabulary);
  map.rope_factors = builder.add_vector(model.rope_factors);
  map.rope_factors_long = builder.add_vector(model.rope_factors_long);
  for (size_t layer = 0; layer < model.blocks.size(); layer++) {
    const model::Block& block = model.spec.blocks[layer];
    if (!share.blocks[layer].takes_part) {
      map.blocks.push_back({});
      continue;
    }
    const auto map_of = block.attention.latent ? map_latent_attention : map_attention;
    BlockSlices slices = map_of(block, model.blocks[layer], share.blocks[layer], builder);
    map_feed_forward(block, model.blocks[layer], share.blocks[layer], builder, slices);
    map.blocks.push_back(slices);
  }
  return map;
}

namespace {

struct Binder {
  const WeightMap& map;
  const std::byte* base;

  const float* vector(int index) const {
    if (index < 0) return nullptr;
    return reinterpret_cast<const float*>(base + map.slices[static_cast<size_t>(index)].offset);
  }
  Matrix matrix(int index) const {
    if (index < 0) return {};
    const WeightSlice& slice = map.slices[static_cast<size_t>(index)];
    return {.panels = base + slice.offset,
            .layout = slice.layout,
            .type = slice.type,
            .activations = kernels::activation_format(slice.layout),
            .rows = slice.matrix_count > 0 ? slice.rows.size() : 0,
            .k = slice.row_length,
            .panel_bytes = slice.panel_bytes,
            .matrix_bytes = slice.matrix_bytes};
  }
};

}  // namespace

Weights bind_weights(const WeightMap& map, const std::byte* base) {
  const Binder bind{map, base};
  Weights weights;
  weights.token_embedding = bind.matrix(map.token_embedding);
  weights.output_norm = bind.vector(map.output_norm);
  weights.output = bind.matrix(map.output);
  weights.rope_factors = bind.vector(map.rope_factors);
  weights.rope_factors_long = bind.vector(map.rope_factors_long);
  for (const BlockSlices& s : map.blocks) {
    weights.blocks.push_back({.attention_norm = bind.vector(s.attention_norm),
                              .ffn_norm = bind.vector(s.ffn_norm),
                              .q_norm = bind.vector(s.q_norm),
                              .k_norm = bind.vector(s.k_norm),
                              .q_bias = bind.vector(s.q_bias),
                              .k_bias = bind.vector(s.k_bias),
                              .v_bias = bind.vector(s.v_bias),
                              .attention_output_bias = bind.vector(s.attention_output_bias),
                              .sinks = bind.vector(s.sinks),
                              .q_down_norm = bind.vector(s.q_down_norm),
                              .kv_down_norm = bind.vector(s.kv_down_norm),
                              .selection_bias = bind.vector(s.selection_bias),
                              .router_bias = bind.vector(s.router_bias),
                              .gate_bias = bind.vector(s.gate_bias),
                              .up_bias = bind.vector(s.up_bias),
                              .down_bias = bind.vector(s.down_bias),
                              .q = bind.matrix(s.q),
                              .k = bind.matrix(s.k),
                              .v = bind.matrix(s.v),
                              .q_down = bind.matrix(s.q_down),
                              .q_up = bind.matrix(s.q_up),
                              .kv_down = bind.matrix(s.kv_down),
                              .k_up = bind.matrix(s.k_up),
                              .v_up = bind.matrix(s.v_up),
                              .attention_output = bind.matrix(s.attention_output),
                              .router = bind.matrix(s.router),
                              .gate = bind.matrix(s.gate),
                              .up = bind.matrix(s.up),
                              .down = bind.matrix(s.down),
                              .shared_router = bind.matrix(s.shared_router),
                              .shared_gate = bind.matrix(s.shared_gate),
                              .shared_up = bind.matrix(s.shared_up),
                              .shared_down = bind.matrix(s.shared_down)});
  }
  return weights;
}

}  // namespace engine
