// Layers in stages: a layer is computed by its members, the other ranks walk past it.
//
//   stage of ranks 0, 1:  embed ─gather of all─ layers 0 … 3 among themselves ─┐ ─ wait ─
//   stage of ranks 2, 3:  embed ─gather of all─ wait ──────────gather of all───┤ layers 4 … 7 ─
//
// The last gather of a stage, of the hidden slices, is one of all ranks: it hands the residual
// stream on to the next stage, or to the final norm, and tells all ranks which columns' router
// scores were not finite. So whoever reads a slice takes part in the next gather of the rank that
// wrote it, and a rank that has left gathers out publishes nothing in the next, which is what two
// buffers ask for (base/exchange.h).
#include <algorithm>

#include "engine/pass.h"

namespace engine {

uint64_t gathers_of(const model::Block& block, const plan::BlockShare& share) {
  const bool full_width = block.attention.qk_norm == model::QkNorm::kFullWidth;
  // Queries and latent, or queries and keys before their norm; heads; hidden.
  const uint64_t attention = block.attention.latent || full_width ? 3 : 2;
  if (!block.experts) return attention + 2;  // intermediate; hidden
  // Scores; intermediate, or what whole experts give; hidden. What comes before the latter is
  // gathered only of shared experts.
  return attention + 3 + (share.whole_experts && block.experts->shared_width > 0 ? 1 : 0);
}

// Of a rank that computes the layer, as it may be another one than this.
const plan::BlockShare& Pass::member_share(size_t layer) const {
  return share_of(rank_.options.plan->members[layer].first(), layer);
}

base::Wait Pass::run_layer(size_t layer) {
  const plan::Plan& plan = *rank_.options.plan;
  if (!rank_.share.blocks[layer].takes_part) return walk_past(layer);
  members_ = plan.members[layer];
  if (plan.begins_stage(layer)) begin_stage(layer);
  const uint64_t first = scratch_.sequence;
  base::Wait wait = attention(layer);
  if (wait != base::Wait::kOk) return wait;
  wait = feed_forward(layer);
  if (wait != base::Wait::kOk) return wait;
  CHECK(scratch_.sequence - first == gathers_of(rank_.spec.blocks[layer], member_share(layer)),
        "layer ", layer, " took ", scratch_.sequence - first, " gathers");
  return wait;
}

// Without computing anything: the number of the next gather is that of the stage's last.
base::Wait Pass::walk_past(size_t layer) {
  scratch_.sequence += gathers_of(rank_.spec.blocks[layer], member_share(layer));
  if (!rank_.options.plan->ends_stage(layer)) return base::Wait::kOk;
  scratch_.sequence--;
  return end_layer(layer, 0);
}

// The residual stream of this thread's part of the own rows starts as what the stage gets: the
// embeddings, or the hidden slices of the stage before.
void Pass::begin_stage(size_t layer) {
  const plan::Range own = rank_.share.blocks[layer].hidden;
  const int64_t panels = (own.size() + kernels::kPanelRows - 1) / kernels::kPanelRows;
  const plan::Range part_rows = own_rows(part(panels), own.size());
  const plan::Range rows{own.begin + part_rows.begin, own.begin + part_rows.end};
  const auto copy = [&](int c, int rank, plan::Range slice) {
    const plan::Range copied{std::max(rows.begin, slice.begin), std::min(rows.end, slice.end)};
    if (copied.begin >= copied.end) return;
    std::copy_n(incoming(rank) + c * slice.size() + copied.begin - slice.begin, copied.size(),
                rank_.hidden.data() + c * own.size() + copied.begin - own.begin);
  };
  for (int c = 0; c < columns(); c++) {
    if (layer == 0) {
      copy(c, owner_of(step_.columns()[as_size(c)].token), {0, rank_.spec.hidden});
      continue;
    }
    for (int r = 0; r < rank_.options.plan->rank_count(); r++) {
      copy(c, r, share_of(r, layer - 1).hidden);
    }
  }
}

// The gather of the hidden slices, `floats` of this rank. At the end of a stage the lowest of its
// ranks puts the fault of each column behind its slice: layers are small enough to be exact floats.
base::Wait Pass::end_layer(size_t layer, size_t floats) {
  const plan::Plan& plan = *rank_.options.plan;
  if (!rank_.has_stages || !plan.ends_stage(layer)) return gather(floats);
  const int teller = plan.members[layer].first();
  if (teller == rank_.options.rank) {
    if (scratch_.thread == 0) std::copy_n(scratch_.faults.data(), columns(), outgoing() + floats);
    floats += as_size(columns());
  }
  members_ = base::RankSet::range(0, plan.rank_count());
  const base::Wait wait = gather(floats);
  if (wait != base::Wait::kOk) return wait;
  const float* told = incoming(teller) + columns() * share_of(teller, layer).hidden.size();
  for (int c = 0; c < columns(); c++) {
    int32_t& fault = scratch_.faults[as_size(c)];
    if (fault < 0) fault = static_cast<int32_t>(told[c]);
  }
  return wait;
}

}  // namespace engine
