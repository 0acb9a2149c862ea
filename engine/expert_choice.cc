// Which experts the columns of a step go to: router scores, the choice, and entries by expert.
#include <algorithm>

#include "base/limits.h"
#include "engine/pass.h"
#include "engine/router.h"
#include "kernels/math.h"

namespace engine {

int64_t Pass::entries_per_column(size_t layer) const {
  const auto& experts = rank_.spec.blocks[layer].experts;
  return experts ? experts->used : 1;
}

// Own router rows, gathered; then every rank chooses alike: each thread for all columns, or where
// that would take longer than a wait, the threads for a part of them each. The row that weighs the
// shared experts lies behind the others on the one rank that has it.
base::Wait Pass::choose_experts(size_t layer, const Activations& x) {
  const model::Experts& experts = *rank_.spec.blocks[layer].experts;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  const auto score = [&](const Matrix& matrix, float* y) {
    deal(matrix.panel_count(), [&](plan::Range panels) {
      multiply({.matrix = matrix,
                .panels = panels,
                .x = x,
                .entries = all_columns(),
                .y = y + panels.begin * kernels::kPanelRows,
                .y_stride = as_size(matrix.rows)});
    });
  };
  const int64_t routed = columns() * weights.router.rows;
  score(weights.router, outgoing());
  score(weights.shared_router, outgoing() + routed);
  base::Wait wait = gather(as_size(routed + columns() * weights.shared_router.rows));
  if (wait != base::Wait::kOk) return wait;
  for (int c = 0; c < columns(); c++) {
    if (redundant() || mine(c)) choose(layer, c, redundant() ? scratch_.choice : rank_.choice);
  }
  if (!redundant()) {
    wait = barrier();
    if (wait != base::Wait::kOk) return wait;
    scratch_.choice.copy(rank_.choice, as_size(columns()), as_size(experts.used));
  }
  for (int c = 0; c < columns(); c++) note_choice(layer, c);
  return wait;
}

void Pass::choose(size_t layer, int c, Choice& choice) {
  const model::Experts& experts = *rank_.spec.blocks[layer].experts;
  const BlockWeights& weights = rank_.options.weights->blocks[layer];
  float* scores = scratch_.full.data();
  assemble([&](int r) { return share_of(r, layer).experts; }, 1, c, scores);
  if (weights.router_bias != nullptr) {
    rank_.ops.add(scores, weights.router_bias, experts.count, scores);
  }
  const bool finite = route({.experts = experts,
                             .ops = rank_.ops,
                             .logits = scores,
                             .selection_bias = weights.selection_bias,
                             .keys = scratch_.keys.data(),
                             .chosen = choice.chosen.data() + c * experts.used,
                             .weights = choice.weight.data() + c * experts.used});
  choice.finite[as_size(c)] = finite ? 1 : 0;
  choice.shared_weight[as_size(c)] = shared_weight(layer, c);
}

// The fault of a column, by every thread; how often experts were chosen, and which, by one.
void Pass::note_choice(size_t layer, int c) {
  const int used = rank_.spec.blocks[layer].experts->used;
  const int32_t* chosen = scratch_.choice.chosen.data() + c * used;
  const bool finite = scratch_.choice.finite[as_size(c)] != 0;
  int32_t& fault = scratch_.faults[as_size(c)];
  if (!finite && fault < 0) fault = static_cast<int32_t>(layer);
  if (scratch_.thread != 0) return;
  uint64_t* use = rank_.expert_use.data() + layer * as_size(rank_.limits.experts);
  for (int s = 0; s < used && finite; s++) use[chosen[s]]++;
  if (rank_.options.expert_trace == nullptr) return;
  const size_t at = layer * as_size(rank_.options.shape.columns_max) + as_size(c);
  std::copy_n(chosen, used, rank_.options.expert_trace + at * base::kExpertsUsedMax);
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
  for (int i = 0; i < entries; i++) begin[scratch_.choice.chosen[as_size(i)] + 1]++;
  for (int e = 0; e < experts; e++) begin[e + 1] += begin[e];
  for (int i = 0; i < entries; i++) {
    scratch_.grouped[as_size(begin[scratch_.choice.chosen[as_size(i)]]++)] = i;
  }
  for (int e = experts; e > 0; e--) begin[e] = begin[e - 1];
  begin[0] = 0;
}

std::span<const int32_t> Pass::entries_of(int64_t expert) const {
  const int32_t begin = scratch_.group_begin[as_size(expert)];
  const int32_t end = scratch_.group_begin[as_size(expert) + 1];
  return {scratch_.grouped.data() + begin, as_size(end - begin)};
}

}  // namespace engine
