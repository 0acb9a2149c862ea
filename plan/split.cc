#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/cat.h"
#include "base/check.h"
#include "base/limits.h"
#include "plan/plan.h"

namespace plan {

const char* strategy_name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kRows: return "rows";
    case Strategy::kExperts: return "experts";
    case Strategy::kLayers: break;
  }
  return "layers";
}

std::optional<Strategy> find_strategy(std::string_view name) {
  for (const Strategy strategy : {Strategy::kRows, Strategy::kExperts, Strategy::kLayers}) {
    if (name == strategy_name(strategy)) return strategy;
  }
  return std::nullopt;
}

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

base::Error invalid(std::string text) {
  return {base::Code::kInvalidArgument, std::move(text)};
}

Range kv_heads_of(Range heads, const model::Attention& attention) {
  if (heads.empty()) return {};
  const int64_t group = attention.heads / attention.kv_heads;
  return {heads.begin / group, (heads.end - 1) / group + 1};
}

// What the ranks own of a layer that they split by rows.
std::vector<BlockShare> split_block(const model::ModelSpec& spec, const model::Block& block,
                                    const std::vector<double>& shares) {
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
  std::vector<BlockShare> out(shares.size());
  for (size_t rank = 0; rank < shares.size(); rank++) {
    out[rank] = {.takes_part = true,
                 .heads = heads[rank],
                 .kv_heads = kv_heads_of(heads[rank], attention),
                 .hidden = hidden[rank],
                 .experts = routed[rank],
                 .width = width[rank],
                 .shared_width = shared_width[rank],
                 .shared_router = shared_router[rank],
                 .query_rank = query_rank[rank],
                 .latent = latent[rank],
                 .owned = {}};
  }
  return out;
}

// Lets the rank that has most to do trade one expert with another rank while that helps. What is
// left to the last rank that may take any is otherwise too much.
void trade_experts(const std::vector<double>& shares, const std::vector<double>& use,
                   std::vector<double>& load, std::vector<BlockShare>& ranks) {
  constexpr int kTradesMax = 256;
  constexpr double kWorthIt = 0.999;
  const auto time_of = [&](size_t r, double more) { return (load[r] + more) / shares[r]; };
  const auto use_of = [&](int32_t e) { return use[static_cast<size_t>(e)]; };
  for (int trade = 0; trade < kTradesMax; trade++) {
    size_t most = 0;
    for (size_t r = 1; r < ranks.size(); r++)
      if (time_of(r, 0) > time_of(most, 0)) most = r;
    double best = time_of(most, 0) * kWorthIt;
    size_t other = most;
    int32_t *given = nullptr, *taken = nullptr;
    for (size_t r = 0; r < ranks.size(); r++) {
      if (r == most) continue;
      for (int32_t& own : ranks[most].owned) {
        for (int32_t& its : ranks[r].owned) {
          const double less = use_of(own) - use_of(its);
          const double time = std::max(time_of(most, -less), time_of(r, less));
          if (time < best) best = time, other = r, given = &own, taken = &its;
        }
      }
    }
    if (given == nullptr) return;
    const double less = use_of(*given) - use_of(*taken);
    load[most] -= less;
    load[other] += less;
    std::swap(*given, *taken);
  }
}

// Whole experts, as many to each rank as its share of the bytes says; which, by how often they are
// used: the most used one first, to the rank that has least to do so far; then they trade.
void own_experts(const model::Experts& experts, const std::vector<double>& shares,
                 const std::vector<double>& use, std::vector<BlockShare>& ranks) {
  const auto counts = split_rows(experts.count, shares, 1);
  std::vector<int32_t> order(static_cast<size_t>(experts.count));
  std::iota(order.begin(), order.end(), 0);
  const auto use_of = [&](int32_t e) { return use.empty() ? 1.0 : use[static_cast<size_t>(e)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return use_of(a) > use_of(b); });
  std::vector<double> load(ranks.size(), 0.0);
  for (const int32_t expert : order) {
    size_t best = ranks.size();
    for (size_t r = 0; r < ranks.size(); r++) {
      if (static_cast<int64_t>(ranks[r].owned.size()) == counts[r].size()) continue;
      if (best == ranks.size() || load[r] / shares[r] < load[best] / shares[best]) best = r;
    }
    ranks[best].owned.push_back(expert);
    load[best] += use_of(expert);
  }
  if (!use.empty()) trade_experts(shares, use, load, ranks);
  for (BlockShare& rank : ranks) {
    rank.whole_experts = true;
    rank.width = {0, experts.width};
    std::sort(rank.owned.begin(), rank.owned.end());
  }
}

base::Status check(const model::ModelSpec& spec, const SplitOptions& options,
                   const std::vector<double>& shares) {
  const auto usable = [](double share) { return share > 0 && std::isfinite(share); };
  if (shares.size() != static_cast<size_t>(options.rank_count) ||
      !std::all_of(shares.begin(), shares.end(), usable)) {
    return invalid(base::cat("one positive share per rank is needed: ", options.rank_count,
                             " ranks, ", shares.size(), " shares"));
  }
  const auto layers = static_cast<int>(spec.blocks.size());
  const int stages = options.stages > 0 ? options.stages : options.rank_count;
  if (options.strategy == Strategy::kLayers &&
      (options.stages < 0 || stages > options.rank_count || stages > layers)) {
    return invalid(base::cat("the layers of this model can be split into 1 to ",
                             std::min(options.rank_count, layers), " stages (", layers, " layers, ",
                             options.rank_count, " ranks), not ", stages));
  }
  if (options.strategy != Strategy::kExperts) return {};
  const auto has_experts = [](const model::Block& block) { return block.experts.has_value(); };
  if (std::none_of(spec.blocks.begin(), spec.blocks.end(), has_experts))
    return invalid("this model has no experts to split; use another strategy");
  return options.expert_use.empty() ? base::Status() : check_expert_use(spec, options.expert_use);
}

// All ranks share every layer.
void split_all(const model::ModelSpec& spec, const SplitOptions& options,
               const std::vector<double>& shares, Plan& plan) {
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    auto split = split_block(spec, spec.blocks[layer], shares);
    const auto& experts = spec.blocks[layer].experts;
    if (options.strategy == Strategy::kExperts && experts) {
      own_experts(*experts, shares,
                  options.expert_use.empty() ? std::vector<double>{} : options.expert_use[layer],
                  split);
    }
    for (size_t rank = 0; rank < shares.size(); rank++)
      plan.ranks[rank].blocks[layer] = std::move(split[rank]);
    plan.members.push_back(base::RankSet::range(0, options.rank_count));
  }
}

// Stages of consecutive ranks, each with consecutive layers.
void split_stages(const model::ModelSpec& spec, const SplitOptions& options,
                  const std::vector<double>& shares, Plan& plan) {
  const int stages = options.stages > 0 ? options.stages : options.rank_count;
  const auto count = static_cast<size_t>(stages);
  const auto ranks = split_rows(options.rank_count, std::vector<double>(count, 1.0), 1);
  std::vector<double> stage_shares(count, 0.0);
  for (size_t s = 0; s < count; s++) {
    for (int64_t r = ranks[s].begin; r < ranks[s].end; r++)
      stage_shares[s] += shares[static_cast<size_t>(r)];
  }
  const auto layers = split_rows(static_cast<int64_t>(spec.blocks.size()), stage_shares, 1);
  for (size_t s = 0; s < count; s++) {
    const auto begin = static_cast<size_t>(ranks[s].begin), end = static_cast<size_t>(ranks[s].end);
    const std::vector<double> own(shares.begin() + ranks[s].begin, shares.begin() + ranks[s].end);
    for (int64_t layer = layers[s].begin; layer < layers[s].end; layer++) {
      const auto l = static_cast<size_t>(layer);
      auto split = split_block(spec, spec.blocks[l], own);
      for (size_t r = begin; r < end; r++) plan.ranks[r].blocks[l] = std::move(split[r - begin]);
      plan.members.push_back(base::RankSet::range(static_cast<int>(begin), static_cast<int>(end)));
    }
  }
}

}  // namespace

base::Status check_expert_use(const model::ModelSpec& spec,
                              const std::vector<std::vector<double>>& use) {
  bool fits = use.size() == spec.blocks.size();
  for (size_t layer = 0; fits && layer < spec.blocks.size(); layer++) {
    const auto& experts = spec.blocks[layer].experts;
    const std::vector<double>& own = use[layer];
    fits = own.size() == static_cast<size_t>(experts ? experts->count : 0) &&
           std::all_of(own.begin(), own.end(), [](double n) { return n >= 0 && std::isfinite(n); });
  }
  if (fits) return {};
  return invalid(
      "the counts of expert use are not of this model: layers or experts are others; take them "
      "from a server that runs it");
}

base::Result<Plan> split(const model::ModelSpec& spec, const SplitOptions& options) {
  if (options.rank_count < 1 || options.rank_count > base::kRanksMax) {
    return invalid(
        base::cat("a group has 1 to ", base::kRanksMax, " ranks, not ", options.rank_count));
  }
  std::vector<double> shares = options.shares;
  if (shares.empty()) shares.assign(static_cast<size_t>(options.rank_count), 1.0);
  RETURN_IF_ERROR(check(spec, options, shares));

  Plan plan;
  plan.strategy = options.strategy;
  plan.ranks.resize(shares.size());
  const auto vocabulary = split_rows(spec.vocabulary, shares, base::kSliceRows);
  for (size_t rank = 0; rank < shares.size(); rank++) {
    plan.ranks[rank].vocabulary = vocabulary[rank];
    plan.ranks[rank].blocks.resize(spec.blocks.size());
  }
  if (options.strategy == Strategy::kLayers) {
    split_stages(spec, options, shares, plan);
  } else {
    split_all(spec, options, shares, plan);
  }
  return plan;
}

}  // namespace plan
