#include "plan/rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/limits.h"

namespace plan {

std::vector<Range> split_rows(int64_t total, const std::vector<double>& shares, int64_t multiple) {
  CHECK(!shares.empty() && multiple > 0 && total >= 0);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<Range> ranges;
  ranges.reserve(shares.size());
  double before = 0;
  int64_t begin = 0;
  for (size_t rank = 0; rank < shares.size(); rank++) {
    before += shares[rank];
    const double ideal = static_cast<double>(total) * before / sum;
    int64_t end = std::llround(ideal / static_cast<double>(multiple)) * multiple;
    end = std::clamp(end, begin, total);
    if (rank + 1 == shares.size()) end = total;
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

namespace {

Range kv_heads_of(Range heads, const model::Attention& attention) {
  if (heads.empty()) return {};
  const int64_t group = attention.heads / attention.kv_heads;
  return {heads.begin / group, (heads.end - 1) / group + 1};
}

}  // namespace

base::Result<Plan> plan_rows(const model::ModelSpec& spec, const RowsOptions& options) {
  if (options.rank_count < 1 || options.rank_count > base::kRanksMax) {
    return base::Error{base::Code::kInvalidArgument, base::cat("a group has 1 to ", base::kRanksMax,
                                                               " ranks, not ", options.rank_count)};
  }
  std::vector<double> shares = options.shares;
  if (shares.empty()) shares.assign(static_cast<size_t>(options.rank_count), 1.0);
  const auto usable = [](double share) { return share > 0 && std::isfinite(share); };
  if (shares.size() != static_cast<size_t>(options.rank_count) ||
      !std::all_of(shares.begin(), shares.end(), usable)) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("one positive share per rank is needed: ", options.rank_count,
                                 " ranks, ", shares.size(), " shares")};
  }

  Plan plan;
  plan.ranks.resize(shares.size());
  const auto vocabulary = split_rows(spec.vocabulary, shares, base::kSliceRows);
  for (size_t rank = 0; rank < shares.size(); rank++) {
    plan.ranks[rank].vocabulary = vocabulary[rank];
    plan.ranks[rank].blocks.resize(spec.blocks.size());
  }
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Block& block = spec.blocks[layer];
    const model::Attention& attention = block.attention;
    const auto rows = [&](int64_t total) { return split_rows(total, shares, base::kSliceRows); };
    const auto& experts = block.experts;
    const auto heads = split_rows(attention.heads, shares, 1);
    const auto hidden = rows(spec.hidden);
    const auto routed = rows(experts ? experts->count : 0);
    const auto width = rows(experts ? experts->width : block.dense_width);
    const auto shared_width = rows(experts ? experts->shared_width : 0);
    const auto shared_router = rows(experts && experts->weighs_shared ? 1 : 0);
    const auto query_rank = rows(attention.latent ? attention.latent->query_rank : 0);
    const auto latent = rows(attention.latent ? attention.head_dim : 0);
    for (size_t rank = 0; rank < shares.size(); rank++) {
      plan.ranks[rank].blocks[layer] = {.heads = heads[rank],
                                        .kv_heads = kv_heads_of(heads[rank], attention),
                                        .hidden = hidden[rank],
                                        .experts = routed[rank],
                                        .width = width[rank],
                                        .shared_width = shared_width[rank],
                                        .shared_router = shared_router[rank],
                                        .query_rank = query_rank[rank],
                                        .latent = latent[rank]};
    }
  }
  return plan;
}

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
  std::string text = base::cat("plan: rows over ", plan.rank_count(),
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
