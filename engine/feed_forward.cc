// The feed-forward half of one layer on one rank; a dense layer is one expert that everybody uses.
//
//   input -> [norm] own router rows --gather scores--> top-k; own gate and up rows of each chosen
//         expert, activation --gather intermediate--> own down rows, weighted sum in slot order,
//         residual --gather hidden-->
//
// An "entry" is one (column, slot): slot s of column c is entry c * used + s. Work is one pass over
// (expert, panel) items, whatever the number of columns; entries are grouped by expert.
#include <algorithm>

#include "engine/pass.h"

namespace engine {

base::Wait Pass::feed_forward(size_t layer) {
  const model::Block& block = rank_.spec.blocks[layer];
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto fill = [&](int64_t c, float* x) {
    const float* hidden = joined([&](int r) { return share_of(r, layer).hidden; }, 1, c, x);
    rank_.ops.rms_norm(hidden, weights.ffn_norm, rank_.spec.hidden, rank_.spec.norm_epsilon, x);
    return x;
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
    std::fill_n(scratch_.choice.chosen.data(), columns(), 0);
    std::fill_n(scratch_.choice.weight.data(), columns(), 1.0f);
    group_by_expert(1, 1);
  }
  const plan::BlockShare& share = rank_.share.blocks[layer];
  if (share.whole_experts) return whole_experts(layer, *x);
  gate_and_up(layer, *x);
  const int64_t entries = columns() * entries_per_column(layer);
  wait = gather(as_size(entries * share.width.size() + columns() * share.shared_width.size()));
  if (wait != base::Wait::kOk) return wait;
  return down(layer);
}

// The experts of a layer that this rank has, and behind them what all tokens share.
int64_t Pass::gated_count(size_t layer) const {
  const auto& experts = rank_.spec.blocks[layer].experts;
  if (!experts) return 1;
  return own_expert_count(layer) + (experts->shared_width > 0 ? 1 : 0);
}

int64_t Pass::own_expert_count(size_t layer) const {
  const plan::BlockShare& share = rank_.share.blocks[layer];
  if (share.whole_experts) return static_cast<int64_t>(share.owned.size());
  return rank_.spec.blocks[layer].experts->count;
}

Pass::Gated Pass::gated(size_t layer, int64_t index) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t used = entries_per_column(layer);
  const plan::BlockShare& share = rank_.share.blocks[layer];
  if (experts && index == own_expert_count(layer)) {
    return {.gate = weights.shared_gate,
            .up = weights.shared_up,
            .index = 0,
            .entries = all_columns(),
            .places = all_columns(),
            .entries_per_column = 1,
            .out = outgoing() + shared_offset(layer, share),
            .out_stride = weights.shared_gate.rows};
  }
  const int64_t expert = share.whole_experts ? share.owned[as_size(index)] : index;
  const int64_t width = experts ? experts->width : 0;
  const int64_t begin = share.width.begin;
  const auto bias = [&](const float* all) {
    return all == nullptr ? nullptr : all + expert * width + begin;
  };
  const bool weighs_input = experts && experts->weighs_input;
  return {.gate = weights.gate,
          .up = weights.up,
          .index = index,
          .entries = entries_of(expert),
          .places = share.whole_experts ? places_of(expert) : entries_of(expert),
          .entries_per_column = used,
          .out = share.whole_experts ? rank_.intermediate.f32.data() : outgoing(),
          .out_stride = share.whole_experts ? static_cast<int64_t>(rank_.intermediate.f32_stride)
                                            : weights.gate.rows,
          .gate_bias = bias(weights.gate_bias),
          .up_bias = bias(weights.up_bias),
          .weights = weighs_input ? scratch_.choice.weight.data() : nullptr};
}

// The activation of gate x and up x for all (expert, panel) items, dealt out by the work of a
// panel: once per entry, and once to read it.
int64_t Pass::Gated::cost() const {
  const auto count = static_cast<int64_t>(entries.size());
  return count == 0 ? 0 : count + 1;
}

void Pass::gate_and_up(size_t layer, const Activations& x) {
  int64_t total = 0;
  for (int64_t e = 0; e < gated_count(layer); e++) {
    const Gated one = gated(layer, e);
    total += one.cost() * one.gate.panel_count();
  }
  deal(total, [&](plan::Range cost) { gate_and_up_part(layer, x, cost); });
}

void Pass::gate_and_up_part(size_t layer, const Activations& x, plan::Range own) {
  const int64_t count = gated_count(layer);
  int64_t before = 0;  // cost of all experts before e
  for (int64_t e = 0; e < count && before < own.end; e++) {
    const Gated one = gated(layer, e);
    const int64_t cost = one.cost(), panel_count = one.gate.panel_count();
    if (cost == 0) continue;
    // Panel p starts at before + p * cost and belongs to the part that holds its start.
    const auto panel_at = [&](int64_t at) {
      return std::clamp<int64_t>((at - before + cost - 1) / cost, 0, panel_count);
    };
    multiply_gated(
        one, rank_.spec.blocks[layer].activation,
        {own.begin <= before ? 0 : panel_at(own.begin), own.end <= before ? 0 : panel_at(own.end)},
        x);
    before += cost * panel_count;
  }
}

// A few panels at a time, so that what `up` gives is still in the cache when it is needed.
void Pass::multiply_gated(const Gated& one, const model::ActivationSpec& activation,
                          plan::Range panels, const Activations& x) {
  const int64_t step = up_rows() / kernels::kPanelRows;
  for (int64_t p = panels.begin; p < panels.end; p += step) {
    const plan::Range few{p, std::min(p + step, panels.end)};
    const plan::Range rows = own_rows(few, one.gate.rows);
    multiply({.matrix = one.gate,
              .index = one.index,
              .panels = few,
              .x = x,
              .entries = one.entries,
              .outputs = one.places,
              .entries_per_column = one.entries_per_column,
              .y = one.out + rows.begin,
              .y_stride = as_size(one.out_stride)});
    multiply({.matrix = one.up,
              .index = one.index,
              .panels = few,
              .x = x,
              .entries = one.entries,
              .entries_per_column = one.entries_per_column,
              .y = scratch_.up.data(),
              .y_stride = as_size(up_rows())});
    activate(one, activation, rows);
  }
}

// What comes between up to up_rows() rows of gate and up and the input of down. A weight of the
// input is applied to the products instead, which are linear in it.
void Pass::activate(const Gated& one, const model::ActivationSpec& activation, plan::Range rows) {
  for (size_t n = 0; n < one.entries.size(); n++) {
    const int32_t entry = one.entries[n];
    float* gate = one.out + one.places[n] * one.out_stride + rows.begin;
    float* up = scratch_.up.data() + entry * up_rows();
    for (int64_t i = 0; i < rows.size() && one.weights != nullptr; i++) {
      gate[i] *= one.weights[entry];
      up[i] *= one.weights[entry];
    }
    if (one.gate_bias != nullptr) {
      rank_.ops.add(gate, one.gate_bias + rows.begin, rows.size(), gate);
    }
    if (one.up_bias != nullptr) rank_.ops.add(up, one.up_bias + rows.begin, rows.size(), up);
    switch (activation.kind) {
      case model::Activation::kSilu: rank_.ops.silu_multiply(gate, up, rows.size(), gate); break;
      case model::Activation::kClampedSwiglu:
        rank_.ops.clamped_swiglu(gate, up, rows.size(), {activation.alpha, activation.limit}, gate);
        break;
    }
  }
}

// Where the shared experts' part of a rank's slice begins: behind the entries, if they are in it.
int64_t Pass::shared_offset(size_t layer, const plan::BlockShare& share) const {
  if (share.whole_experts) return 0;
  return columns() * entries_per_column(layer) * share.width.size();
}

}  // namespace engine
