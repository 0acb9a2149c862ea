#include "plan/footprint.h"

#include <algorithm>

#include "base/limits.h"

namespace plan {

namespace {

constexpr uint64_t kSliceAlignment = 128;  // of engine/weights.h

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

class Collector {
 public:
  Collector(const Packing& packing, RankFootprint& out) : packing_(packing), out_(out) {}
  void collect_into(std::vector<Piece>& pieces) { pieces_ = &pieces; }

  /// `rows` of each of so many matrices of a tensor; nothing without one.
  void add(Phase phase, const model::TensorInfo* tensor, int64_t matrices, int64_t rows) {
    if (tensor == nullptr) return;
    place({.phase = phase,
           .type = tensor->type,
           .row_length = tensor->row_length(),
           .rows = rows,
           .matrices = matrices});
  }
  void add(Phase phase, const model::TensorInfo* tensor, int64_t rows) {
    add(phase, tensor, 1, rows);
  }
  void add_shared(Phase phase, const model::TensorInfo* tensor, int64_t rows) {
    if (tensor == nullptr) return;
    add(phase, tensor, rows);
    pieces_->back().shared_use = true;
  }
  void add_experts(Phase phase, const model::TensorInfo* tensor, int64_t matrices, int64_t rows) {
    if (tensor == nullptr) return;
    add(phase, tensor, matrices, rows);
    pieces_->back().chosen = true;
  }

  /// As in the file: looked up, or short.
  void add_plain(const model::TensorInfo* tensor, int64_t rows) {
    if (tensor == nullptr) return;
    const auto row = static_cast<uint64_t>(kernels::row_bytes(tensor->type, tensor->row_length()));
    const Piece piece{
        .type = tensor->type,
        .row_length = tensor->row_length(),
        .rows = rows,
        .matrix_bytes = static_cast<uint64_t>((rows + 15) / 16) * round_up(row * 16, 64)};
    keep(piece);
  }
  void add_vector(const model::TensorInfo* tensor) { add_plain(tensor, 1); }
  void add_vectors(const model::TensorInfo* tensor) {
    if (tensor != nullptr) add_plain(tensor, tensor->row_count());
  }

  void place(Piece piece) {
    piece.matrix_bytes =
        static_cast<uint64_t>(piece.panels()) * packing_.panel_bytes(piece.type, piece.row_length);
    keep(piece);
  }

 private:
  void keep(const Piece& piece) {
    out_.weight_bytes += round_up(piece.bytes(), kSliceAlignment);
    pieces_->push_back(piece);
  }

  const Packing& packing_;
  RankFootprint& out_;
  std::vector<Piece>* pieces_ = nullptr;
};

void collect_attention(const model::Attention& attention, const model::BlockTensors& tensors,
                       const BlockShare& share, Collector& to) {
  for (const model::TensorInfo* vector :
       {tensors.attention_norm, tensors.q_norm, tensors.k_norm, tensors.q_bias, tensors.k_bias,
        tensors.v_bias, tensors.attention_output_bias, tensors.sinks})
    to.add_vector(vector);
  const model::TensorInfo* fused = tensors.qkv;
  to.add(Phase::kInput, fused ? fused : tensors.q, share.heads.size() * attention.head_dim);
  to.add(Phase::kInput, fused ? fused : tensors.k, share.kv_heads.size(), attention.head_dim);
  to.add(Phase::kInput, fused ? fused : tensors.v, share.kv_heads.size(), attention.value_dim);
  to.add(Phase::kOutput, tensors.attention_output, share.hidden.size());
}

void collect_latent(const model::Attention& attention, const model::BlockTensors& tensors,
                    const BlockShare& share, Collector& to) {
  const model::Latent& latent = *attention.latent;
  for (const model::TensorInfo* vector :
       {tensors.attention_norm, tensors.q_down_norm, tensors.kv_down_norm})
    to.add_vector(vector);
  const int64_t heads = share.heads.size(), query_rows = heads * attention.query_dim();
  to.add(Phase::kInput, tensors.q_down, share.query_rank.size());
  to.add(Phase::kInput, tensors.kv_down, share.latent.size());
  to.add(Phase::kInput, tensors.q, query_rows);
  to.add(Phase::kQueries, tensors.q_up, query_rows);
  if (tensors.kv_up != nullptr) {
    // Expanded to float32, since rows of quantised blocks cannot be transposed.
    to.place({.phase = Phase::kAbsorb,
              .type = kernels::TensorType::kF32,
              .row_length = latent.plain_dim,
              .rows = tensors.kv_up->row_length(),
              .matrices = heads});
    to.add(Phase::kValues, tensors.kv_up, heads, latent.value_dim);
  } else {
    to.add(Phase::kAbsorb, tensors.k_up, heads, latent.rank);
    to.add(Phase::kValues, tensors.v_up, heads, latent.value_dim);
  }
  to.add(Phase::kOutput, tensors.attention_output, share.hidden.size());
}

void collect_feed_forward(const model::Block& block, const model::BlockTensors& tensors,
                          const BlockShare& share, Collector& to) {
  to.add_vector(tensors.ffn_norm);
  int64_t matrices = 1, down_rows = share.hidden.size();
  if (block.experts) {
    matrices = share.whole_experts ? static_cast<int64_t>(share.owned.size())
                                   : int64_t{block.experts->count};
    to.add(Phase::kRouter, tensors.router, share.experts.size());
    if (share.whole_experts) down_rows = tensors.down->shape[1];
  }
  const auto add = [&](Phase phase, const model::TensorInfo* tensor, int64_t rows) {
    if (block.experts) {
      to.add_experts(phase, tensor, matrices, rows);
    } else {
      to.add(phase, tensor, rows);
    }
  };
  const model::TensorInfo* fused = tensors.gate_up;
  add(Phase::kGateUp, fused ? fused : tensors.gate, share.width.size());
  add(Phase::kGateUp, fused ? fused : tensors.up, share.width.size());
  add(Phase::kDown, tensors.down, down_rows);
  to.add_vector(tensors.selection_bias);
  to.add_vector(tensors.router_bias);
  for (const model::TensorInfo* vectors : {tensors.gate_bias, tensors.up_bias, tensors.down_bias})
    to.add_vectors(vectors);
  to.add_plain(tensors.shared_router, share.shared_router.size());
  to.add_shared(Phase::kGateUp, tensors.shared_gate, share.shared_width.size());
  to.add_shared(Phase::kGateUp, tensors.shared_up, share.shared_width.size());
  to.add_shared(Phase::kDown, tensors.shared_down, share.hidden.size());
}

}  // namespace

RankFootprint footprint(const model::Model& model, const RankShare& share, const Packing& packing) {
  RankFootprint out;
  Collector to(packing, out);
  to.collect_into(out.ends);
  to.add_plain(model.token_embedding, share.vocabulary.size());
  to.add_vector(model.output_norm);
  // A tied output matrix is held a second time where its type has a fast product.
  if (model.output != model.token_embedding || packing.is_fast(model.output->type)) {
    to.add(Phase::kLogits, model.output, share.vocabulary.size());
  } else {
    out.ends.front().phase = Phase::kLogits;
  }
  to.add_vector(model.rope_factors);
  out.layers.resize(model.blocks.size());
  for (size_t layer = 0; layer < model.blocks.size(); layer++) {
    if (!share.blocks[layer].takes_part) continue;
    to.collect_into(out.layers[layer]);
    const model::Block& block = model.spec.blocks[layer];
    const auto collect = block.attention.latent ? collect_latent : collect_attention;
    collect(block.attention, model.blocks[layer], share.blocks[layer], to);
    collect_feed_forward(block, model.blocks[layer], share.blocks[layer], to);
  }
  return out;
}

}  // namespace plan
