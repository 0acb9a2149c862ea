// The feed-forward half of one layer on one rank; a dense layer is one expert that everybody uses.
//
//   input -> [norm] own router rows --gather scores--> top-k; own gate and up rows of each chosen
//         expert, activation --gather intermediate--> own down rows, weighted sum in slot order,
//         residual --gather hidden-->
//
// An "entry" is one (column, slot): slot s of column c is entry c * used + s. Work is one pass over
// (expert, panel) items, whatever the number of columns; entries are grouped by expert.
#include <algorithm>

#include "base/limits.h"
#include "engine/pass.h"
#include "engine/router.h"
#include "kernels/math.h"

namespace engine {

base::Wait Pass::feed_forward(size_t layer) {
  const model::Block& block = rank_.spec.blocks[layer];
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto fill = [&](int64_t c, float* x) {
    assemble([&](int r) { return share_of(r, layer).hidden; }, 1, c, x);
    rank_.ops.rms_norm(x, weights.ffn_norm, rank_.spec.hidden, rank_.spec.norm_epsilon, x);
  };
  const Activations* x = nullptr;
  base::Wait wait = prepare(
      rank_.normed, scratch_.normed, columns(),
      {&weights.router, &weights.gate, &weights.up, &weights.shared_gate, &weights.shared_up}, fill,
      &x);
  if (wait != base::Wait::kOk) return wait;
  if (block.experts) {
    wait = choose_experts(layer, *x);
    if (wait != base::Wait::kOk) return wait;
    group_by_expert(block.experts->count, block.experts->used);
  } else {
    std::fill_n(scratch_.chosen.data(), columns(), 0);
    std::fill_n(scratch_.chosen_weight.data(), columns(), 1.0f);
    group_by_expert(1, 1);
  }
  gate_and_up(layer, *x);
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const int64_t entries = columns() * entries_per_column(layer);
  wait = gather(as_size(entries * share.width.size() + columns() * share.shared_width.size()));
  if (wait != base::Wait::kOk) return wait;
  return down(layer);
}

int64_t Pass::entries_per_column(size_t layer) const {
  const auto& experts = rank_.spec.blocks[layer].experts;
  return experts ? experts->used : 1;
}

// Own router rows, gathered; then every thread of every rank chooses alike. The row that weighs
// the shared experts lies behind the others on the one rank that has it.
base::Wait Pass::choose_experts(size_t layer, const Activations& x) {
  const model::Experts& experts = *rank_.spec.blocks[layer].experts;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto score = [&](const Matrix& matrix, float* y) {
    const plan::Range panels = part(matrix.panel_count());
    multiply({.matrix = matrix,
              .panels = panels,
              .x = x,
              .entries = all_columns(),
              .y = y + panels.begin * kernels::kPanelRows,
              .y_stride = as_size(matrix.rows)});
  };
  const int64_t routed = columns() * weights.router.rows;
  score(weights.router, outgoing());
  score(weights.shared_router, outgoing() + routed);
  const base::Wait wait = gather(as_size(routed + columns() * weights.shared_router.rows));
  if (wait != base::Wait::kOk) return wait;
  for (int c = 0; c < columns(); c++) {
    float* scores = scratch_.full.data();
    assemble([&](int r) { return share_of(r, layer).experts; }, 1, c, scores);
    const bool finite = route({.experts = experts,
                               .ops = rank_.ops,
                               .logits = scores,
                               .selection_bias = weights.selection_bias,
                               .keys = scratch_.keys.data(),
                               .chosen = scratch_.chosen.data() + c * experts.used,
                               .weights = scratch_.chosen_weight.data() + c * experts.used});
    scratch_.shared_weight[as_size(c)] = shared_weight(layer, c);
    int32_t& fault = scratch_.faults[as_size(c)];
    if (!finite && fault < 0) fault = static_cast<int32_t>(layer);
    if (rank_.options.expert_trace != nullptr && scratch_.thread == 0) {
      const size_t at = layer * as_size(rank_.options.shape.columns_max) + as_size(c);
      std::copy_n(scratch_.chosen.data() + c * experts.used, experts.used,
                  rank_.options.expert_trace + at * base::kExpertsUsedMax);
    }
  }
  return wait;
}

// How much the shared experts count for a column; 1 where the model has no row that says it.
float Pass::shared_weight(size_t layer, int c) const {
  for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
    const plan::BlockShare& share = share_of(r, layer);
    if (share.shared_router.empty()) continue;
    return kernels::sigmoid_f32(incoming(r)[columns() * share.experts.size() + c]);
  }
  return 1;
}

// Counting sort of all entries by their expert.
void Pass::group_by_expert(int experts, int used) {
  const int entries = columns() * used;
  int32_t* begin = scratch_.group_begin.data();
  std::fill_n(begin, experts + 1, 0);
  for (int i = 0; i < entries; i++) begin[scratch_.chosen[as_size(i)] + 1]++;
  for (int e = 0; e < experts; e++) begin[e + 1] += begin[e];
  for (int i = 0; i < entries; i++) {
    scratch_.grouped[as_size(begin[scratch_.chosen[as_size(i)]]++)] = i;
  }
  for (int e = experts; e > 0; e--) begin[e] = begin[e - 1];
  begin[0] = 0;
}

std::span<const int32_t> Pass::entries_of(int64_t expert) const {
  const int32_t begin = scratch_.group_begin[as_size(expert)];
  const int32_t end = scratch_.group_begin[as_size(expert) + 1];
  return {scratch_.grouped.data() + begin, as_size(end - begin)};
}

// The experts of a layer, and behind them what all tokens share.
int64_t Pass::gated_count(size_t layer) const {
  const auto& experts = rank_.spec.blocks[layer].experts;
  if (!experts) return 1;
  return experts->count + (experts->shared_width > 0 ? 1 : 0);
}

Pass::Gated Pass::gated(size_t layer, int64_t expert) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t used = entries_per_column(layer);
  if (experts && expert == experts->count) {
    return {.gate = weights.shared_gate,
            .up = weights.shared_up,
            .index = 0,
            .entries = all_columns(),
            .entries_per_column = 1,
            .out = outgoing() + columns() * used * weights.gate.rows};
  }
  return {.gate = weights.gate,
          .up = weights.up,
          .index = expert,
          .entries = entries_of(expert),
          .entries_per_column = used,
          .out = outgoing()};
}

// silu(gate x) * (up x) for this thread's part of all (expert, panel) items. Parts are weighted by
// the work of a panel: once per entry, and once to read it.
void Pass::gate_and_up(size_t layer, const Activations& x) {
  const int64_t count = gated_count(layer);
  const auto cost_of = [](const Gated& one) -> int64_t {
    const auto entries = static_cast<int64_t>(one.entries.size());
    return entries == 0 ? 0 : entries + 1;
  };
  int64_t total = 0;
  for (int64_t e = 0; e < count; e++) {
    const Gated one = gated(layer, e);
    total += cost_of(one) * one.gate.panel_count();
  }
  const plan::Range own = part(total);
  int64_t before = 0;  // cost of all experts before e
  for (int64_t e = 0; e < count; e++) {
    const Gated one = gated(layer, e);
    const int64_t cost = cost_of(one), panel_count = one.gate.panel_count();
    if (cost == 0) continue;
    // Panel p starts at before + p * cost and belongs to the part that holds its start.
    const auto panel_at = [&](int64_t at) {
      return std::clamp<int64_t>((at - before + cost - 1) / cost, 0, panel_count);
    };
    multiply_gated(
        one,
        {own.begin <= before ? 0 : panel_at(own.begin), own.end <= before ? 0 : panel_at(own.end)},
        x);
    before += cost * panel_count;
  }
}

// A few panels at a time, so that what `up` gives is still in the cache when it is needed.
void Pass::multiply_gated(const Gated& one, plan::Range panels, const Activations& x) {
  constexpr int64_t kStep = kUpRows / kernels::kPanelRows;
  const int64_t width = one.gate.rows;
  for (int64_t p = panels.begin; p < panels.end; p += kStep) {
    const plan::Range few{p, std::min(p + kStep, panels.end)};
    const plan::Range rows = own_rows(few, width);
    multiply({.matrix = one.gate,
              .index = one.index,
              .panels = few,
              .x = x,
              .entries = one.entries,
              .entries_per_column = one.entries_per_column,
              .y = one.out + rows.begin,
              .y_stride = as_size(width)});
    multiply({.matrix = one.up,
              .index = one.index,
              .panels = few,
              .x = x,
              .entries = one.entries,
              .entries_per_column = one.entries_per_column,
              .y = scratch_.up.data(),
              .y_stride = kUpRows});
    for (const int32_t entry : one.entries) {
      float* gate = one.out + entry * width + rows.begin;
      rank_.ops.silu_multiply(gate, scratch_.up.data() + entry * kUpRows, rows.size(), gate);
    }
  }
}

// Own rows of every chosen expert's down projection and of the shared one, their weighted sum in
// slot order, the residual, and the gather of the latter.
base::Wait Pass::down(size_t layer) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const Matrix& matrix = weights.down;
  const Matrix& shared = weights.shared_down;
  const int64_t used = entries_per_column(layer);
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t expert_count = experts ? experts->count : 1;
  const auto fill = [&](int64_t entry, float* x) {
    assemble([&](int r) { return share_of(r, layer).width; }, 1, entry, x);
  };
  const Activations* x = nullptr;
  base::Wait wait =
      prepare(rank_.intermediate, scratch_.intermediate, columns() * used, {&matrix}, fill, &x);
  if (wait != base::Wait::kOk) return wait;
  const Activations* shared_x = nullptr;
  if (experts && experts->shared_width > 0) {
    wait = prepare(
        rank_.shared_intermediate, scratch_.shared_intermediate, columns(), {&shared},
        [&](int64_t c, float* to) { assemble_shared(layer, c, to); }, &shared_x);
    if (wait != base::Wait::kOk) return wait;
  }

  const plan::Range panels = part(matrix.panel_count());
  const plan::Range rows = own_rows(panels, matrix.rows);
  const int64_t stride = matrix.rows;
  for (int64_t e = 0; e < expert_count; e++) {
    multiply({.matrix = matrix,
              .index = e,
              .panels = panels,
              .x = *x,
              .entries = entries_of(e),
              .y = rank_.down.data() + rows.begin,
              .y_stride = as_size(stride)});
  }
  if (shared_x != nullptr) {
    multiply({.matrix = shared,
              .panels = panels,
              .x = *shared_x,
              .entries = all_columns(),
              .y = rank_.shared_down.data() + rows.begin,
              .y_stride = as_size(stride)});
  }
  weigh_and_add(layer, rows);
  return gather(as_size(columns() * stride));
}

// What the shared experts' down projection multiplies: it lies behind the entries of each slice.
void Pass::assemble_shared(size_t layer, int64_t c, float* out) const {
  const int64_t entries = columns() * entries_per_column(layer);
  for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
    const plan::BlockShare& share = share_of(r, layer);
    if (share.shared_width.empty()) continue;
    const float* from = incoming(r) + entries * share.width.size() + c * share.shared_width.size();
    std::copy_n(from, share.shared_width.size(), out + share.shared_width.begin);
  }
}

void Pass::weigh_and_add(size_t layer, plan::Range rows) {
  if (rows.empty()) return;
  const int64_t used = entries_per_column(layer);
  const int64_t stride = rank_.options.weights->blocks[layer].down.rows;
  const bool shared = !rank_.options.weights->blocks[layer].shared_down.empty();
  for (int c = 0; c < columns(); c++) {
    float* sum = outgoing() + c * stride + rows.begin;
    std::fill_n(sum, rows.size(), 0.0f);
    for (int64_t s = 0; s < used; s++) {
      const int64_t entry = c * used + s;
      rank_.ops.multiply_add(scratch_.chosen_weight[as_size(entry)],
                             rank_.down.data() + entry * stride + rows.begin, rows.size(), sum);
    }
    if (shared) {
      rank_.ops.multiply_add(scratch_.shared_weight[as_size(c)],
                             rank_.shared_down.data() + c * stride + rows.begin, rows.size(), sum);
    }
    float* residual = rank_.hidden.data() + c * stride + rows.begin;
    add_to_residual(sum, rows.size(), residual);
    std::copy_n(residual, rows.size(), sum);
  }
}

}  // namespace engine
