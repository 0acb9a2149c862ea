// The experts of a layer that belong to one rank each, as a whole.
//
//   top-k on every rank -> gate, up and activation of own experts, for the entries that chose them
//         -> down, all hidden rows --gather slot outputs--> weighted sum in slot order of own
//         hidden rows, residual --gather hidden-->
//
// What lies between gate and down stays on its rank; there the threads only meet at a barrier, or
// at the gather of what lies there in the shared experts, which are split by rows. An own entry has
// a "place": how many entries before it, in the order of columns and slots, are of the same rank.
// Everybody computes the places of all entries, so a slice is just its rows.
#include <algorithm>

#include "engine/panel_work.h"
#include "engine/pass.h"

namespace engine {

// Everybody knows what everybody does: place of each entry on its rank, and entries of each rank.
void Pass::place_entries(size_t layer) {
  const auto& owners = rank_.expert_owner[layer];
  const int64_t entries = columns() * entries_per_column(layer);
  int32_t* taken = scratch_.rank_entries.data();
  std::fill_n(taken, rank_.options.plan->rank_count(), 0);
  for (int64_t i = 0; i < entries; i++) {
    const int32_t expert = scratch_.choice.chosen[as_size(i)];
    scratch_.place[as_size(i)] = taken[owners[as_size(expert)]]++;
  }
  for (int64_t i = 0; i < entries; i++) {
    const int32_t entry = scratch_.grouped[as_size(i)];
    scratch_.grouped_place[as_size(i)] = scratch_.place[as_size(entry)];
  }
}

// Beside entries_of(): where on their rank they lie.
std::span<const int32_t> Pass::places_of(int64_t expert) const {
  const auto begin = as_size(scratch_.group_begin[as_size(expert)]);
  return {scratch_.grouped_place.data() + begin, entries_of(expert).size()};
}

// What an expert gave for an entry: the first of this rank's hidden rows, after the gather.
const float* Pass::slot_output(size_t layer, int64_t entry) const {
  const plan::BlockShare& share = rank_.share.blocks[layer];
  if (!share.whole_experts) return rank_.down.data() + entry * share.hidden.size();
  const int32_t expert = scratch_.choice.chosen[as_size(entry)];
  const int owner = rank_.expert_owner[layer][as_size(expert)];
  return incoming(owner) + scratch_.place[as_size(entry)] * rank_.spec.hidden + share.hidden.begin;
}

base::Wait Pass::whole_experts(size_t layer, const Activations& x) {
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const bool shared = rank_.spec.blocks[layer].experts->shared_width > 0;
  place_entries(layer);
  gate_and_up(layer, x);
  base::Wait wait = shared ? gather(as_size(columns() * share.shared_width.size())) : barrier();
  if (wait != base::Wait::kOk) return wait;
  wait = whole_down(layer);
  if (wait != base::Wait::kOk) return wait;
  const int64_t own_rows_count = share.hidden.size();
  const int64_t panels = (own_rows_count + kernels::kPanelRows - 1) / kernels::kPanelRows;
  weigh_and_add(layer, own_rows(part(panels), own_rows_count));
  return end_layer(layer, as_size(columns() * own_rows_count));
}

// All hidden rows of the own experts, own rows of the shared ones; and the gather of the former.
base::Wait Pass::whole_down(size_t layer) {
  const plan::BlockShare& share = rank_.share.blocks[layer];
  const model::Experts& experts = *rank_.spec.blocks[layer].experts;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const int64_t entries = scratch_.rank_entries[as_size(rank_.options.rank)];
  const int64_t hidden = rank_.spec.hidden;
  const auto fill = [&](int64_t place, float*) {
    return rank_.intermediate.f32.data() + as_size(place) * rank_.intermediate.f32_stride;
  };
  const Activations* x = nullptr;
  base::Wait wait =
      prepare(rank_.intermediate, scratch_.intermediate, entries, {&weights.down}, fill, &x);
  if (wait != base::Wait::kOk) return wait;
  const Activations* shared_x = nullptr;
  if (experts.shared_width > 0) {
    wait = prepare(
        rank_.shared_intermediate, scratch_.shared_intermediate, columns(), {&weights.shared_down},
        [&](int64_t c, float* to) { return assemble_shared(layer, c, to); }, &shared_x);
    if (wait != base::Wait::kOk) return wait;
  }

  const auto own_count = static_cast<int64_t>(share.owned.size());
  const int64_t count = own_count + (shared_x == nullptr ? 0 : 1);  // the shared ones come last
  const auto work_of = [&](int64_t i) {
    return i == own_count
               ? panel_work(weights.shared_down.panel_count(), all_columns().size())
               : panel_work(weights.down.panel_count(), places_of(share.owned[as_size(i)]).size());
  };
  const auto multiply_panels = [&](int64_t i, plan::Range panels) {
    const int64_t row = panels.begin * kernels::kPanelRows;
    if (i == own_count) {
      multiply({.matrix = weights.shared_down,
                .panels = panels,
                .x = *shared_x,
                .entries = all_columns(),
                .y = rank_.shared_down.data() + row,
                .y_stride = as_size(weights.shared_down.rows)});
    } else {
      multiply({.matrix = weights.down,
                .index = i,
                .panels = panels,
                .x = *x,
                .entries = places_of(share.owned[as_size(i)]),
                .y = outgoing() + row,
                .y_stride = as_size(hidden)});
    }
  };
  deal(total_cost(count, work_of),
       [&](plan::Range cost) { visit_panels(count, cost, work_of, multiply_panels); });
  return gather(as_size(entries * hidden));
}

}  // namespace engine
