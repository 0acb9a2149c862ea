// Attention through a latent (model::Latent) of one layer on one rank, in the absorbed form, for
// any number of columns: keys and values are never expanded; each head's projections are applied
// to its query and to its result instead.
//
//   input -> [norm] own q_down, kv_down rows --gather--> [norm] own heads' q_up rows; latent and
//         rotated key part into the cache --wait--> k_up of own heads, [rope] --wait--> attend
//         --wait--> v_up of own heads --gather heads--> output as in attention.cc
//
// The cache of every rank with a head holds the whole latent once, as a key [latent, rotated part]
// whose beginning is the value (docs/decisions/006-mla.md).
#include <algorithm>

#include "base/limits.h"
#include "engine/pass.h"

namespace engine {

base::Wait Pass::latent_attention(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t heads = rank_.share.blocks[layer].heads.size();
  base::Wait wait = latent_down(layer);
  if (wait != base::Wait::kOk) return wait;
  wait = latent_queries(layer);
  if (wait != base::Wait::kOk) return wait;
  absorb_queries(layer);
  wait = barrier();
  if (wait != base::Wait::kOk) return wait;
  attend(layer);
  wait = barrier();
  if (wait != base::Wait::kOk) return wait;
  latent_values(layer);
  wait = gather(as_size(columns() * heads * attention.output_dim()));
  if (wait != base::Wait::kOk) return wait;
  return attention_output(layer);
}

// Own rows of the compressed query and of the latent, side by side in the slice; and of the whole
// query where it is not compressed.
base::Wait Pass::latent_down(size_t layer) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const Activations* x = nullptr;
  const base::Wait wait =
      attention_input(layer, {&weights.q, &weights.q_down, &weights.kv_down}, &x);
  if (wait != base::Wait::kOk) return wait;
  const int64_t stride = weights.q_down.rows + weights.kv_down.rows;
  const auto project = [&](const Matrix& matrix, float* y, int64_t y_stride) {
    deal(matrix.panel_count(), [&](plan::Range panels) {
      multiply({.matrix = matrix,
                .panels = panels,
                .x = *x,
                .entries = all_columns(),
                .y = y + panels.begin * kernels::kPanelRows,
                .y_stride = as_size(y_stride)});
    });
  };
  project(weights.q_down, outgoing(), stride);
  project(weights.kv_down, outgoing() + weights.q_down.rows, stride);
  project(weights.q, rank_.q.data(), weights.q.rows);
  return gather(as_size(columns() * stride));
}

// The latent of each column into the cache, and own heads' queries of compressed ones.
base::Wait Pass::latent_queries(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const int64_t rank_width = attention.latent->query_rank;
  if (!rank_.share.blocks[layer].heads.empty()) {
    for (int c = 0; c < columns(); c++) {
      if (mine(c)) store_latent(layer, c);
    }
  }
  if (rank_width > 0) {
    const auto fill = [&](int64_t c, float* x) {
      for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
        const plan::BlockShare& share = share_of(r, layer);
        const int64_t stride = share.query_rank.size() + share.latent.size();
        std::copy_n(incoming(r) + c * stride, share.query_rank.size(), x + share.query_rank.begin);
      }
      rank_.ops.rms_norm(x, weights.q_down_norm, rank_width, rank_.spec.norm_epsilon, x);
      return x;
    };
    const Activations* x = nullptr;
    const base::Wait wait =
        prepare(rank_.normed, scratch_.normed, columns(), {&weights.q_up}, fill, &x);
    if (wait != base::Wait::kOk) return wait;
    deal(weights.q_up.panel_count(), [&](plan::Range panels) {
      multiply({.matrix = weights.q_up,
                .panels = panels,
                .x = *x,
                .entries = all_columns(),
                .y = rank_.q.data() + panels.begin * kernels::kPanelRows,
                .y_stride = as_size(weights.q_up.rows)});
    });
  }
  return barrier();
}

// Norm of the latent, rope of the key part behind it, both into this rank's cache.
void Pass::store_latent(size_t layer, int c) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t latent = attention.latent->rank;
  float* key = scratch_.heads.data();
  for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
    const plan::BlockShare& share = share_of(r, layer);
    const int64_t stride = share.query_rank.size() + share.latent.size();
    std::copy_n(incoming(r) + c * stride + share.query_rank.size(), share.latent.size(),
                key + share.latent.begin);
  }
  rank_.ops.rms_norm(key, rank_.options.weights->blocks[layer].kv_down_norm, latent,
                     rank_.spec.norm_epsilon, key);
  rope(layer, c, key + latent);
  const KvPool& kv = *rank_.options.kv;
  const int slot = static_cast<int>(step_.columns()[as_size(c)].position % base::kKvBlockPositions);
  rank_.ops.store_v(kv.type(), key, attention.head_dim, slot,
                    kv.k_block(layer, block_of(layer, c), 0));
}

// The (own head, panel) items of a matrix per head, with all columns. A head cut between two
// threads has its input prepared by both.
template <class Fill>
void Pass::multiply_heads(const Matrix& matrix, const HeadOutput& output, Fill fill) {
  const int64_t panel_count = matrix.panel_count();
  Activations& input = scratch_.head_input;
  int64_t prepared = -1;  // the head whose input that is
  deal(output.heads * panel_count, [&](plan::Range own) {
    for (int64_t at = own.begin; at < own.end;) {
      const int64_t head = at / panel_count, first = head * panel_count;
      const plan::Range panels{at - first, std::min(own.end - first, panel_count)};
      at = first + panels.end;
      for (int c = 0; c < columns() && head != prepared; c++) {
        float* x = input.f32.data() + as_size(c) * input.f32_stride;
        fill(head, c, x);
        quantise_for(matrix, input, as_size(c));
      }
      prepared = head;
      multiply({.matrix = matrix,
                .index = head,
                .panels = panels,
                .x = input,
                .entries = all_columns(),
                .y = output.y + head * output.head_stride + panels.begin * kernels::kPanelRows,
                .y_stride = as_size(output.column_stride)});
    }
  });
}

void Pass::quantise_for(const Matrix& matrix, Activations& a, size_t column) const {
  const float* x = a.f32.data() + column * a.f32_stride;
  switch (matrix.activations) {
    case kernels::ActivationFormat::kQ8:
      rank_.ops.quantise(x, matrix.k, a.q8.data() + column * a.q8_stride);
      break;
    case kernels::ActivationFormat::kQ8_32:
      rank_.ops.quantise_32(x, matrix.k, a.q8_32.data() + column * a.q8_32_stride);
      break;
    case kernels::ActivationFormat::kF32: break;
  }
}

// Each own head's key projection, applied to the plain part of its queries.
void Pass::absorb_queries(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t heads = rank_.share.blocks[layer].heads.size();
  const int64_t query_dim = attention.query_dim(), plain = attention.latent->plain_dim;
  const auto fill = [&](int64_t head, int64_t c, float* x) {
    std::copy_n(rank_.q.data() + (c * heads + head) * query_dim, plain, x);
  };
  multiply_heads(rank_.options.weights->blocks[layer].k_up,
                 {.heads = heads,
                  .y = rank_.latent_heads.data(),
                  .head_stride = attention.head_dim,
                  .column_stride = heads * attention.head_dim},
                 fill);
}

// The absorbed query and the rotated one of a (column, own head); the result takes the absorbed
// query's place.
float* Pass::load_latent_query(size_t layer, int c, int64_t index, float* query) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t latent = attention.latent->rank, dims = attention.rope.dims;
  float* absorbed = rank_.latent_heads.data() + index * attention.head_dim;
  std::copy_n(absorbed, latent, query);
  std::copy_n(rank_.q.data() + index * attention.query_dim() + attention.latent->plain_dim, dims,
              query + latent);
  rope(layer, c, query + latent);
  return absorbed;
}

// Each own head's value projection, applied to its result.
void Pass::latent_values(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const int64_t heads = rank_.share.blocks[layer].heads.size();
  const auto fill = [&](int64_t head, int64_t c, float* x) {
    std::copy_n(rank_.latent_heads.data() + (c * heads + head) * attention.head_dim,
                attention.latent->rank, x);
  };
  multiply_heads(rank_.options.weights->blocks[layer].v_up,
                 {.heads = heads,
                  .y = outgoing(),
                  .head_stride = attention.output_dim(),
                  .column_stride = heads * attention.output_dim()},
                 fill);
}

}  // namespace engine
