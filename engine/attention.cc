// Attention of one layer on one rank: own q, k and v rows, rope, own heads against the own KV
// cache, own rows of the output projection.
//
//   input -> [norm] q k v rows --wait--> [q norm, rope] attend own heads --gather heads-->
//         own output rows + residual --gather hidden-->
//
// A thread computes whole K and V heads, so that it can normalise, turn and store a key itself and
// one wait is enough before all heads attend. With a norm over the full width of all heads the q
// and k rows are gathered first; in decode each key is then stored by the thread that attends with
// it.
#include <algorithm>

#include "base/limits.h"
#include "engine/pass.h"

namespace engine {

namespace {

void add_bias(const kernels::Ops& ops, const float* bias, int64_t n, float* y) {
  if (bias != nullptr) ops.add(y, bias, n, y);
}

}  // namespace

base::Wait Pass::attention(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  if (attention.latent) return latent_attention(layer);
  base::Wait wait = project(layer);
  if (wait != base::Wait::kOk) return wait;
  if (attention.qk_norm == model::QkNorm::kFullWidth) {
    wait = normalise_full_width(layer);
    if (wait != base::Wait::kOk) return wait;
  }
  attend(layer);
  wait = gather(as_size(columns() * rank_.share.blocks[layer].heads.size() * attention.value_dim));
  if (wait != base::Wait::kOk) return wait;
  return attention_output(layer);
}

// The input of layer `layer`, normed, in all columns.
base::Wait Pass::attention_input(size_t layer, std::initializer_list<const Matrix*> matrices,
                                 const Activations** x) {
  const float* norm = rank_.options.weights->blocks[layer].attention_norm;
  const auto fill = [&](int64_t c, float* out) {
    const float* hidden =
        layer == 0 ? incoming(owner_of(step_.columns()[as_size(c)].token)) + c * rank_.spec.hidden
                   : joined([&](int r) { return share_of(r, layer - 1).hidden; }, 1, c, out);
    rank_.ops.rms_norm(hidden, norm, rank_.spec.hidden, rank_.spec.norm_epsilon, out);
    return out;
  };
  return prepare(rank_.normed, scratch_.normed, columns(), matrices, fill, x);
}

// Own q, k and v rows of all columns. Items are panels: first the K heads, then the V heads,
// each whole, then the q rows.
base::Wait Pass::project(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const bool full_width = attention.qk_norm == model::QkNorm::kFullWidth;
  const Activations* x = nullptr;
  const base::Wait wait = attention_input(layer, {&weights.q, &weights.k, &weights.v}, &x);
  if (wait != base::Wait::kOk) return wait;

  const int64_t kv_heads = share.kv_heads.size();
  const int64_t kv_panels = kv_heads * (weights.k.panel_count() + weights.v.panel_count());
  deal(kv_panels + weights.q.panel_count(),
       [&](plan::Range panels) { project_part(layer, *x, panels); });
  if (!full_width) return barrier();
  return gather(as_size(columns() * (weights.q.rows + kv_heads * attention.head_dim)));
}

void Pass::project_part(size_t layer, const Activations& x, plan::Range own) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const bool full_width = attention.qk_norm == model::QkNorm::kFullWidth;
  const int64_t kv_heads = share.kv_heads.size();
  const int64_t k_panels = weights.k.panel_count(), v_panels = weights.v.panel_count();
  const int64_t kv_panels = kv_heads * (k_panels + v_panels);
  // A head belongs to the part that holds its middle panel.
  const auto owns = [&](int64_t first, int64_t count) { return own.contains(first + count / 2); };
  for (int64_t head = 0; head < kv_heads; head++) {
    if (owns(head * k_panels, k_panels)) {
      multiply({.matrix = weights.k,
                .index = head,
                .panels = {0, k_panels},
                .x = x,
                .entries = all_columns(),
                .y = rank_.k.data() + head * attention.head_dim,
                .y_stride = as_size(kv_heads * attention.head_dim)});
      finish_key(layer, head);
    }
    if (owns(kv_heads * k_panels + head * v_panels, v_panels)) {
      multiply({.matrix = weights.v,
                .index = head,
                .panels = {0, v_panels},
                .x = x,
                .entries = all_columns(),
                .y = rank_.v.data() + head * attention.value_dim,
                .y_stride = as_size(kv_heads * attention.value_dim)});
      finish_value(layer, head);
    }
  }
  const plan::Range q_panels{std::max<int64_t>(own.begin - kv_panels, 0),
                             std::max<int64_t>(own.end - kv_panels, 0)};
  const plan::Range q_rows = own_rows(q_panels, weights.q.rows);
  float* q = full_width ? outgoing() : rank_.q.data();
  const int64_t q_stride =
      full_width ? weights.q.rows + kv_heads * attention.head_dim : weights.q.rows;
  multiply({.matrix = weights.q,
            .panels = q_panels,
            .x = x,
            .entries = all_columns(),
            .y = q + q_rows.begin,
            .y_stride = as_size(q_stride)});
  const float* bias = weights.q_bias;
  if (bias != nullptr) bias += share.heads.begin * attention.head_dim + q_rows.begin;
  for (int c = 0; c < columns() && !q_rows.empty(); c++) {
    add_bias(rank_.ops, bias, q_rows.size(), q + c * q_stride + q_rows.begin);
  }
}

// After a K head's rows were computed: bias, then either norm, rope and cache, or (norm of all
// heads) into the slice to be gathered.
void Pass::finish_key(size_t layer, int64_t own_head) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t dim = attention.head_dim, kv_width = share.kv_heads.size() * dim;
  const float* bias = weights.k_bias;
  if (bias != nullptr) bias += (share.kv_heads.begin + own_head) * dim;
  for (int c = 0; c < columns(); c++) {
    float* key = rank_.k.data() + c * kv_width + own_head * dim;
    add_bias(rank_.ops, bias, dim, key);
    if (attention.qk_norm == model::QkNorm::kFullWidth) {
      const int64_t stride = weights.q.rows + kv_width;
      std::copy_n(key, dim, outgoing() + c * stride + weights.q.rows + own_head * dim);
      continue;
    }
    store_key(layer, c, own_head, key);
  }
}

void Pass::finish_value(size_t layer, int64_t own_head) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t dim = attention.value_dim;
  const float* bias = rank_.options.weights->blocks[layer].v_bias;
  if (bias != nullptr) bias += (share.kv_heads.begin + own_head) * dim;
  for (int c = 0; c < columns(); c++) {
    float* value = rank_.v.data() + (c * share.kv_heads.size() + own_head) * dim;
    add_bias(rank_.ops, bias, dim, value);
    const int64_t position = step_.columns()[as_size(c)].position;
    rank_.ops.store_v(rank_.options.kv->type(), value, attention.value_dim,
                      static_cast<int>(position % base::kKvBlockPositions),
                      rank_.options.kv->v_block(layer, block_of(layer, c), own_head));
  }
}

// KV blocks of a sequence, in the pool that has this layer.
std::span<const int32_t> Pass::blocks_of(size_t layer, int32_t sequence) const {
  return rank_.options.kv->is_near(layer) ? step_.near_blocks(sequence) : step_.blocks(sequence);
}

// The KV block that holds a column's position.
int32_t Pass::block_of(size_t layer, int c) const {
  const Column& column = step_.columns()[as_size(c)];
  return blocks_of(layer, column.sequence)[as_size(column.position / base::kKvBlockPositions)];
}

// Turns a key and writes it into its block. `key` is changed.
void Pass::store_key(size_t layer, int c, int64_t own_head, float* key) {
  turn_head(layer, c, rank_.options.weights->blocks[layer].k_norm, key);
  const int64_t position = step_.columns()[as_size(c)].position;
  rank_.ops.store_k(rank_.options.kv->type(), key, rank_.spec.blocks[layer].attention.head_dim,
                    static_cast<int>(position % base::kKvBlockPositions),
                    rank_.options.kv->k_block(layer, block_of(layer, c), own_head));
}

// Own heads of q and k after a norm over all heads. In decode (one column per sequence) keys are
// left to attend(), else they are stored here, which takes one more wait.
base::Wait Pass::normalise_full_width(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t dim = attention.head_dim;
  const bool leaves = leaves_keys(layer);
  Buffer<float>& q = redundant() ? scratch_.q : rank_.q;
  Buffer<float>& k = redundant() ? scratch_.k : rank_.k;
  for (int c = 0; c < columns(); c++) {
    if (!redundant() && !mine(c)) continue;
    float* full = scratch_.full.data();
    for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
      const plan::Range heads = share_of(r, layer).heads;
      const int64_t stride = (heads.size() + share_of(r, layer).kv_heads.size()) * dim;
      std::copy_n(incoming(r) + c * stride, heads.size() * dim, full + heads.begin * dim);
    }
    rank_.ops.rms_norm(full, weights.q_norm, attention.heads * dim, rank_.spec.norm_epsilon, full);
    std::copy_n(full + share.heads.begin * dim, share.heads.size() * dim,
                q.data() + c * share.heads.size() * dim);
    for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
      const plan::Range heads = share_of(r, layer).heads, kv = share_of(r, layer).kv_heads;
      const int64_t stride = (heads.size() + kv.size()) * dim;
      std::copy_n(incoming(r) + c * stride + heads.size() * dim, kv.size() * dim,
                  full + kv.begin * dim);
    }
    rank_.ops.rms_norm(full, weights.k_norm, attention.kv_heads * dim, rank_.spec.norm_epsilon,
                       full);
    std::copy_n(full + share.kv_heads.begin * dim, share.kv_heads.size() * dim,
                k.data() + c * share.kv_heads.size() * dim);
    for (int64_t head = 0; head < share.kv_heads.size() && !leaves; head++) {
      if (redundant() && !mine(c)) continue;
      store_key(layer, c, head, k.data() + (c * share.kv_heads.size() + head) * dim);
    }
  }
  return leaves ? base::Wait::kOk : barrier();
}

// Own rows of the output projection, added to the residual stream, and the gather of the latter.
base::Wait Pass::attention_output(size_t layer) {
  const model::Attention& attention = rank_.spec.blocks[layer].attention;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const Matrix& output = weights.attention_output;
  const auto fill = [&](int64_t c, float* x) {
    return joined([&](int r) { return share_of(r, layer).heads; }, attention.output_dim(), c, x);
  };
  const Activations* x = nullptr;
  base::Wait wait = prepare(rank_.normed, scratch_.normed, columns(), {&output}, fill, &x);
  if (wait != base::Wait::kOk) return wait;

  deal(output.panel_count(), [&](plan::Range panels) { attention_output_part(layer, *x, panels); });
  return gather(as_size(columns() * output.rows));
}

void Pass::attention_output_part(size_t layer, const Activations& x, plan::Range panels) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const Matrix& output = weights.attention_output;
  const plan::Range rows = own_rows(panels, output.rows);
  const int64_t stride = output.rows;
  float* out = outgoing();
  multiply({.matrix = output,
            .panels = panels,
            .x = x,
            .entries = all_columns(),
            .y = out + rows.begin,
            .y_stride = as_size(stride)});
  const float* bias = weights.attention_output_bias;
  if (bias != nullptr) bias += share.hidden.begin + rows.begin;
  for (int c = 0; c < columns() && !rows.empty(); c++) {
    float* residual = rank_.hidden.data() + c * stride + rows.begin;
    float* y = out + c * stride + rows.begin;
    add_bias(rank_.ops, bias, rows.size(), y);
    add_to_residual(y, rows.size(), residual);
    std::copy_n(residual, rows.size(), y);
  }
}

// A product with 1 and its sum, rounded once, is the sum.
void Pass::add_to_residual(const float* y, int64_t rows, float* residual) const {
  rank_.ops.multiply_add(rank_.spec.residual_scale, y, rows, residual);
}

}  // namespace engine
