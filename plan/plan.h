// How a model is split over the ranks of a group: what each of them owns.
//
// Plain values, the same on every rank. Every row belongs to exactly one rank, except K and V rows
// of a KV head whose query heads lie on several ranks: those ranks each keep that head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/exchange.h"
#include "base/result.h"
#include "model/model.h"

namespace plan {

/// How the layers of one group are split. (Replicas are several groups.)
enum class Strategy {
  kRows,     // every matrix by output rows, over all ranks
  kExperts,  // the same, but experts as a whole
  kLayers,   // consecutive layers per stage; a stage of several ranks splits its layers by rows
};
const char* strategy_name(Strategy strategy);
std::optional<Strategy> find_strategy(std::string_view name);

/// Half-open range of rows (or heads, or experts).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool contains(int64_t row) const { return row >= begin && row < end; }
  bool operator==(const Range&) const = default;
};

/// What one rank owns of one layer.
struct BlockShare {
  bool takes_part = false;  // as one of the layer's members; else everything is empty
  Range heads;              // query heads
  Range kv_heads;           // KV heads that these touch; empty without query heads
  Range hidden;             // rows of the attention output and of the down projections
  Range experts;            // rows of the router
  Range width;              // rows of gate and up, of every expert or of the dense feed-forward
  Range shared_width;       // the same of the shared experts
  Range shared_router;      // the one row that weighs them; empty on all ranks but one
  Range query_rank;         // rows of the compressed queries (latent attention)
  Range latent;             // rows of the latent and of the rotated key part behind it
  /// An expert belongs to one rank as a whole, with all rows of gate, up and down; `width` is then
  /// the full width. The same on all ranks.
  bool whole_experts = false;
  std::vector<int32_t> owned;  // those of this rank, ascending; only of whole experts
};

/// What one rank owns.
struct RankShare {
  std::vector<BlockShare> blocks;  // [layers]
  Range vocabulary;                // rows of the token embedding and of the output matrix
};

struct Plan {
  Strategy strategy = Strategy::kRows;
  std::vector<RankShare> ranks;        // [rank_count]
  std::vector<base::RankSet> members;  // [layers] who computes it; the others only wait for its end
  int rank_count() const { return static_cast<int>(ranks.size()); }
  /// Whether a layer is the first, or the last, of a stage: layers with the same members.
  bool begins_stage(size_t layer) const {
    return layer == 0 || !(members[layer] == members[layer - 1]);
  }
  bool ends_stage(size_t layer) const {
    return layer + 1 == members.size() || begins_stage(layer + 1);
  }
  /// Whether somebody takes no part in some layer.
  bool has_stages() const {
    return std::ranges::any_of(
        members, [&](base::RankSet set) { return set != base::RankSet::range(0, rank_count()); });
  }
};

struct SplitOptions {
  Strategy strategy = Strategy::kRows;
  int rank_count = 1;
  /// Relative speed of each rank, all > 0; empty means equal.
  std::vector<double> shares = {};
  /// Of kLayers: stages of consecutive ranks, as even as possible; 0: one rank each.
  int stages = 0;
  /// Of kExperts: [layers][experts] how often each was chosen, 0 or more; empty: equally often.
  std::vector<std::vector<double>> expert_use = {};
};

/// Cuts [0, total) at multiples of `multiple`, as near to the shares as that allows; the last
/// boundary is `total`. Ranges may be empty. REQUIRES: shares not empty, all > 0; total >= 0.
std::vector<Range> split_rows(int64_t total, const std::vector<double>& shares, int64_t multiple);

/// The plan of these options. Errors: kInvalidArgument for a rank count outside [1, kRanksMax],
/// shares, stages or counts that do not fit, a strategy that the model has nothing for.
base::Result<Plan> split(const model::ModelSpec& spec, const SplitOptions& options);

/// Error: kInvalidArgument if counts of choices, [layers][experts], are not of this model.
base::Status check_expert_use(const model::ModelSpec& spec,
                              const std::vector<std::vector<double>>& use);

/// The plan in a few lines for people: the layers of each rank where stages have different ones,
/// what it owns of the first of them, whole experts of the first layer that has any, and rows of
/// the vocabulary; which KV heads are kept by more than one rank and what that costs.
std::string describe(const Plan& plan, const model::ModelSpec& spec);

}  // namespace plan
