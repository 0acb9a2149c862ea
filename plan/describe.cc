#include "base/cat.h"
#include "plan/plan.h"

namespace plan {

namespace {

std::string text_of(Range range) {
  if (range.empty()) return "none";
  return base::cat(range.begin, "-", range.end - 1);
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

}  // namespace

std::string describe(const Plan& plan, const model::ModelSpec& spec) {
  std::string text = base::cat("plan: ", strategy_name(plan.strategy), " over ", plan.rank_count(),
                               plan.rank_count() == 1 ? " rank\n" : " ranks\n");
  if (spec.blocks.empty()) return text;
  int64_t kv_heads = 0;
  for (const model::Block& block : spec.blocks) kv_heads += block.attention.kv_heads;
  for (int r = 0; r < plan.rank_count(); r++) {
    const RankShare& rank = plan.ranks[static_cast<size_t>(r)];
    const BlockShare& block = rank.blocks[0];
    text += base::cat("  rank ", r, ": query heads ", text_of(block.heads), ", KV heads ",
                      text_of(block.kv_heads), ", hidden rows ", text_of(block.hidden),
                      ", feed-forward rows ", text_of(block.width),
                      spec.blocks[0].experts ? base::cat(", router rows ", text_of(block.experts))
                                             : std::string(),
                      ", vocabulary ", text_of(rank.vocabulary), "\n");
  }
  if (const int64_t copies = copied_kv_heads(plan, spec); copies > 0) {
    text += base::cat("  KV heads touched by the query heads of several ranks are kept by each: ",
                      copies, " copies beside ", kv_heads, " over all layers, ",
                      100 * copies / kv_heads, " % more KV cache and K and V rows\n");
  }
  return text;
}

}  // namespace plan
