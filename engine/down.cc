// The second half of feed_forward.cc: own down rows of every chosen expert and of the shared one,
// and their weighted sum in slot order.
#include <algorithm>

#include "engine/panel_work.h"
#include "engine/pass.h"

namespace engine {

// Own rows of every chosen expert's down projection and of the shared one, their weighted sum in
// slot order, the residual, and the gather of the latter.
base::Wait Pass::down(size_t layer) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const Matrix& matrix = weights.down;
  const Matrix& shared = weights.shared_down;
  const int64_t used = entries_per_column(layer);
  const auto& experts = rank_.spec.blocks[layer].experts;
  const auto fill = [&](int64_t entry, float* x) {
    return joined([&](int r) { return share_of(r, layer).width; }, 1, entry, x);
  };
  const Activations* x = nullptr;
  base::Wait wait =
      prepare(rank_.intermediate, scratch_.intermediate, columns() * used, {&matrix}, fill, &x);
  if (wait != base::Wait::kOk) return wait;
  const Activations* shared_x = nullptr;
  if (experts && experts->shared_width > 0) {
    wait = prepare(
        rank_.shared_intermediate, scratch_.shared_intermediate, columns(), {&shared},
        [&](int64_t c, float* to) { return assemble_shared(layer, c, to); }, &shared_x);
    if (wait != base::Wait::kOk) return wait;
  }

  if (redundant()) {
    down_slabs(layer, *x, shared_x);
  } else {
    deal(matrix.panel_count(), [&](plan::Range panels) { down_part(layer, *x, shared_x, panels); });
  }
  return end_layer(layer, as_size(columns() * matrix.rows));
}

// With few columns a thread's rows are a slab: it multiplies those of one expert after the other,
// in long streams, and whoever does the last of a slab adds up its rows.
//
//   slab 0: | expert a: panels 0 … 63 | expert b | shared |   slab 1: | expert a: panels 64 … 127 |
void Pass::down_slabs(size_t layer, const Activations& x, const Activations* shared_x) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t experts_count = experts ? experts->count : 1;
  const int64_t count = experts_count + (shared_x == nullptr ? 0 : 1);  // the shared ones come last
  const int64_t panels = weights.down.panel_count();
  const auto columns_of = [&](int64_t e) {
    return e == experts_count ? all_columns().size() : entries_of(e).size();
  };
  const int64_t panel_cost =
      total_cost(count, [&](int64_t e) { return panel_work(1, columns_of(e)); });
  const auto in_slab = [&](size_t slab_index, plan::Range slab, plan::Range cost) {
    visit_panels(
        count, cost, [&](int64_t e) { return panel_work(slab.size(), columns_of(e)); },
        [&](int64_t e, plan::Range some) {
          multiply_down(layer, e, {slab.begin + some.begin, slab.begin + some.end},
                        e == experts_count ? *shared_x : x);
        });
    if (rank_.slabs_done.is_last(slab_index, scratch_.dispatch,
                                 {.done = cost.size(), .of = slab.size() * panel_cost})) {
      weigh_and_add(layer, own_rows(slab, weights.down.rows));
    }
  };
  deal(panels * panel_cost, [&](plan::Range cost) {
    for (int64_t s = 0; s < threads(); s++) {
      const plan::Range slab{panels * s / threads(), panels * (s + 1) / threads()};
      const int64_t before = slab.begin * panel_cost;
      const plan::Range here{std::max(cost.begin - before, int64_t{0}),
                             std::min(cost.end - before, slab.size() * panel_cost)};
      if (here.begin < here.end) in_slab(as_size(s), slab, here);
    }
  });
}

// Some own rows of an expert's down projection, or behind the last one's of the shared one.
void Pass::multiply_down(size_t layer, int64_t expert, plan::Range panels, const Activations& x) {
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto& experts = rank_.spec.blocks[layer].experts;
  const bool shared = experts && expert == experts->count;
  const int64_t row = panels.begin * kernels::kPanelRows;
  multiply({.matrix = shared ? weights.shared_down : weights.down,
            .index = shared ? 0 : expert,
            .panels = panels,
            .x = x,
            .entries = shared ? all_columns() : entries_of(expert),
            .y = (shared ? rank_.shared_down : rank_.down).data() + row,
            .y_stride = as_size(weights.down.rows)});
}

// With many columns, whose sums are worth sharing too: some rows of all experts.
void Pass::down_part(size_t layer, const Activations& x, const Activations* shared_x,
                     plan::Range panels) {
  const Matrix& matrix = rank_.options.weights->blocks[layer].down;
  const auto& experts = rank_.spec.blocks[layer].experts;
  const int64_t expert_count = experts ? experts->count : 1;
  for (int64_t e = 0; e < expert_count; e++) multiply_down(layer, e, panels, x);
  if (shared_x != nullptr) multiply_down(layer, expert_count, panels, *shared_x);
  weigh_and_add(layer, own_rows(panels, matrix.rows));
}

// What the shared experts' down projection multiplies.
const float* Pass::assemble_shared(size_t layer, int64_t c, float* out) const {
  for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
    const plan::BlockShare& share = share_of(r, layer);
    if (share.shared_width.empty()) continue;
    const float* from = incoming(r) + shared_offset(layer, share) + c * share.shared_width.size();
    std::copy_n(from, share.shared_width.size(), out + share.shared_width.begin);
  }
  return out;
}

// `rows` of the own hidden rows: what the experts of each column gave, in slot order, what all
// columns share, and the residual; into the slice, and kept.
void Pass::weigh_and_add(size_t layer, plan::Range rows) {
  if (rows.empty()) return;
  const int64_t used = entries_per_column(layer);
  const int64_t stride = rank_.share.blocks[layer].hidden.size();
  const bool shared = !rank_.options.weights->blocks[layer].shared_down.empty();
  const auto& experts = rank_.spec.blocks[layer].experts;
  const bool weighed = experts && experts->weighs_input;  // before, so not again
  const float* bias = rank_.options.weights->blocks[layer].down_bias;
  if (bias != nullptr) bias += rank_.share.blocks[layer].hidden.begin + rows.begin;
  for (int c = 0; c < columns(); c++) {
    float* sum = outgoing() + c * stride + rows.begin;
    std::fill_n(sum, rows.size(), 0.0f);
    for (int64_t s = 0; s < used; s++) {
      const int64_t entry = c * used + s;
      const float* y = slot_output(layer, entry) + rows.begin;
      if (bias != nullptr) {
        const int64_t expert = scratch_.choice.chosen[as_size(entry)];
        float* biased = scratch_.hidden_rows.data();
        rank_.ops.add(y, bias + expert * rank_.spec.hidden, rows.size(), biased);
        y = biased;
      }
      rank_.ops.multiply_add(weighed ? 1 : scratch_.choice.weight[as_size(entry)], y, rows.size(),
                             sum);
    }
    if (shared) {
      rank_.ops.multiply_add(scratch_.choice.shared_weight[as_size(c)],
                             rank_.shared_down.data() + c * stride + rows.begin, rows.size(), sum);
    }
    float* residual = rank_.hidden.data() + c * stride + rows.begin;
    add_to_residual(sum, rows.size(), residual);
    std::copy_n(residual, rows.size(), sum);
  }
}

}  // namespace engine
