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

namespace engine {

base::Wait Pass::feed_forward(size_t layer) {
  const model::Block& block = rank_.spec.blocks[layer];
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto fill = [&](int64_t c, float* x) {
    assemble([&](int r) { return share_of(r, layer).hidden; }, 1, c, x);
    rank_.ops.rms_norm(x, weights.ffn_norm, rank_.spec.hidden, rank_.spec.norm_epsilon, x);
  };
  const Activations* x = nullptr;
  base::Wait wait = prepare(rank_.normed, scratch_.normed, columns(),
                            {&weights.router, &weights.gate, &weights.up}, fill, &x);
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
  const int64_t entries = columns() * entries_per_column(layer);
  wait = gather(as_size(entries * rank_.share.blocks[layer].width.size()));
  if (wait != base::Wait::kOk) return wait;
  return down(layer);
}

int64_t Pass::entries_per_column(size_t layer) const {
  const auto& experts = rank_.spec.blocks[layer].experts;
  return experts ? experts->used : 1;
}

// Own router rows, gathered; then every thread of every rank chooses alike.
base::Wait Pass::choose_experts(size_t layer, const Activations& x) {
  const model::Experts& experts = *rank_.spec.blocks[layer].experts;
  const Matrix& router = rank_.options.weights->blocks[layer].router;
  const plan::Range panels = part(router.panel_count());
  multiply({.matrix = router,
            .panels = panels,
            .x = x,
            .entries = all_columns(),
            .y = outgoing() + panels.begin * kernels::kPanelRows,
            .y_stride = as_size(router.rows)});
  const base::Wait wait = gather(as_size(columns() * router.rows));
  if (wait != base::Wait::kOk) return wait;
  for (int c = 0; c < columns(); c++) {
    float* scores = scratch_.full.data();
    assemble([&](int r) { return share_of(r, layer).experts; }, 1, c, scores);
    const bool finite = route(experts, rank_.ops, scores, scratch_.chosen.data() + c * experts.used,
                              scratch_.chosen_weight.data() + c * experts.used);
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

// silu(gate x) * (up x) for this thread's part of all (expert, panel) items, a few panels at a
// time. Parts are weighted by the work of a panel: once per entry, and once to read it.
void Pass::gate_and_up(size_t layer, const Activations& x) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const int64_t per_column = entries_per_column(layer);
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t expert_count = experts ? experts->count : 1;
  const int64_t panel_count = weights.gate.panel_count(), width = weights.gate.rows;
  constexpr int64_t kStep = kUpRows / kernels::kPanelRows;
  const auto cost_of = [&](int64_t expert) -> int64_t {
    const auto entries = static_cast<int64_t>(entries_of(expert).size());
    return entries == 0 ? 0 : entries + 1;
  };
  int64_t total = 0;
  for (int64_t e = 0; e < expert_count; e++) total += cost_of(e) * panel_count;
  const plan::Range own = part(total);
  int64_t before = 0;  // cost of all experts before e
  float* out = outgoing();
  for (int64_t e = 0; e < expert_count; before += cost_of(e) * panel_count, e++) {
    const int64_t cost = cost_of(e);
    if (cost == 0) continue;
    // Panel p starts at before + p * cost and belongs to the part that holds its start.
    const auto panel_at = [&](int64_t at) {
      return std::clamp<int64_t>((at - before + cost - 1) / cost, 0, panel_count);
    };
    const plan::Range panels{own.begin <= before ? 0 : panel_at(own.begin),
                             own.end <= before ? 0 : panel_at(own.end)};
    for (int64_t p = panels.begin; p < panels.end; p += kStep) {
      const plan::Range few{p, std::min(p + kStep, panels.end)};
      const plan::Range rows = own_rows(few, width);
      const auto entries = entries_of(e);
      multiply({.matrix = weights.gate,
                .index = e,
                .panels = few,
                .x = x,
                .entries = entries,
                .entries_per_column = per_column,
                .y = out + rows.begin,
                .y_stride = as_size(width)});
      multiply({.matrix = weights.up,
                .index = e,
                .panels = few,
                .x = x,
                .entries = entries,
                .entries_per_column = per_column,
                .y = scratch_.up.data(),
                .y_stride = kUpRows});
      for (const int32_t entry : entries) {
        float* gate = out + entry * width + rows.begin;
        rank_.ops.silu_multiply(gate, scratch_.up.data() + entry * kUpRows, rows.size(), gate);
      }
    }
  }
}

// Own rows of every chosen expert's down projection, their weighted sum in slot order, the
// residual, and the gather of the latter.
base::Wait Pass::down(size_t layer) {
  const Matrix& matrix = rank_.options.weights->blocks[layer].down;
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
  float* out = outgoing();
  for (int c = 0; c < columns() && !rows.empty(); c++) {
    float* sum = out + c * stride + rows.begin;
    std::fill_n(sum, rows.size(), 0.0f);
    for (int64_t s = 0; s < used; s++) {
      const int64_t entry = c * used + s;
      rank_.ops.multiply_add(scratch_.chosen_weight[as_size(entry)],
                             rank_.down.data() + entry * stride + rows.begin, rows.size(), sum);
    }
    float* residual = rank_.hidden.data() + c * stride + rows.begin;
    rank_.ops.add(residual, sum, rows.size(), residual);
    std::copy_n(residual, rows.size(), sum);
  }
  return gather(as_size(columns() * stride));
}

}  // namespace engine
