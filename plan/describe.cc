#include "base/cat.h"
#include "plan/plan.h"

namespace plan {

namespace {

std::string text_of(Range range) {
  if (range.empty()) return "none";
  return base::cat(range.begin, "-", range.end - 1);
}

/// "0-63"; "0, 2, 4 … 126" where each is as far from the one before; else "43 (0, 1, 2, 5, …)".
std::string text_of(const std::vector<int32_t>& experts) {
  if (experts.empty()) return "none";
  const size_t count = experts.size();
  const int32_t step = count > 1 ? experts[1] - experts[0] : 1;
  bool even = true;
  for (size_t i = 1; i < count; i++) even = even && experts[i] - experts[i - 1] == step;
  if (even && step == 1) return text_of(Range{experts.front(), experts.back() + 1});
  constexpr size_t kShown = 4;
  const size_t shown = count <= kShown ? count : even ? kShown - 1 : kShown;
  std::string text;
  for (size_t i = 0; i < shown; i++) text += base::cat(i == 0 ? "" : ", ", experts[i]);
  if (shown == count) return text;
  return even ? base::cat(text, " … ", experts.back()) : base::cat(count, " (", text, ", …)");
}

// KV heads kept by more than one rank, over all layers: copies beyond the first.
int64_t copied_kv_heads(const Plan& plan, const model::ModelSpec& spec) {
  int64_t copies = 0;
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    copies -= spec.blocks[layer].attention.kv_heads;
    for (const RankShare& rank : plan.ranks) copies += rank.blocks[layer].kv_heads.size();
  }
  return copies;
}

/// The layers that a rank takes part in; stages have consecutive ones.
Range layers_of(const RankShare& rank) {
  Range layers;
  for (size_t layer = 0; layer < rank.blocks.size(); layer++) {
    if (!rank.blocks[layer].takes_part) continue;
    const auto number = static_cast<int64_t>(layer);
    if (layers.empty()) layers.begin = number;
    layers.end = number + 1;
  }
  return layers;
}

/// Of the first layer that has whole experts.
std::string experts_text(const RankShare& rank) {
  for (size_t layer = 0; layer < rank.blocks.size(); layer++) {
    const BlockShare& block = rank.blocks[layer];
    if (block.whole_experts)
      return base::cat(", whole experts of layer ", layer, ": ", text_of(block.owned));
  }
  return {};
}

std::string rank_text(const Plan& plan, const model::ModelSpec& spec, const RankShare& rank) {
  const Range layers = layers_of(rank);
  std::string text;
  if (plan.has_stages()) text = base::cat("layers ", text_of(layers), ", ");
  if (!layers.empty()) {
    const auto first = static_cast<size_t>(layers.begin);
    const BlockShare& block = rank.blocks[first];
    text += base::cat("query heads ", text_of(block.heads), ", KV heads ", text_of(block.kv_heads),
                      ", hidden rows ", text_of(block.hidden));
    if (!block.whole_experts) text += base::cat(", feed-forward rows ", text_of(block.width));
    if (spec.blocks[first].experts) text += base::cat(", router rows ", text_of(block.experts));
    text += experts_text(rank) + ", ";
  }
  return base::cat(text, "vocabulary ", text_of(rank.vocabulary));
}

}  // namespace

std::string describe(const Plan& plan, const model::ModelSpec& spec) {
  std::string text = base::cat("slices: ", strategy_name(plan.strategy), " over ",
                               plan.rank_count(), plan.rank_count() == 1 ? " rank\n" : " ranks\n");
  if (spec.blocks.empty()) return text;
  int64_t kv_heads = 0;
  for (const model::Block& block : spec.blocks) kv_heads += block.attention.kv_heads;
  for (int r = 0; r < plan.rank_count(); r++)
    text += base::cat("  rank ", r, ": ", rank_text(plan, spec, plan.ranks[static_cast<size_t>(r)]),
                      "\n");
  if (const int64_t copies = copied_kv_heads(plan, spec); copies > 0) {
    text += base::cat("  KV heads touched by the query heads of several ranks are kept by each: ",
                      copies, " copies beside ", kv_heads, " over all layers, ",
                      100 * copies / kv_heads, " % more KV cache and K and V rows\n");
  }
  return text;
}

}  // namespace plan
