// The `rows` strategy: which rows of every matrix, and which heads, each rank of a group owns.
//
// Pure functions of the model's shape and the shares; no memory, files or threads. Every row
// belongs to exactly one rank, except K and V rows of a KV head whose query heads lie on several
// ranks: those ranks each keep that head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace plan {

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
  Range heads;          // query heads
  Range kv_heads;       // KV heads that these touch; empty without query heads
  Range hidden;         // rows of the attention output and of the down projections
  Range experts;        // rows of the router
  Range width;          // rows of gate and up, of every expert or of the dense feed-forward
  Range shared_width;   // the same of the shared experts
  Range shared_router;  // the one row that weighs them; empty on all ranks but one
  Range query_rank;     // rows of the compressed queries (latent attention)
  Range latent;         // rows of the latent and of the rotated key part behind it
};

/// What one rank owns.
struct RankShare {
  std::vector<BlockShare> blocks;  // [layers]
  Range vocabulary;                // rows of the token embedding and of the output matrix
};

struct Plan {
  std::vector<RankShare> ranks;  // [rank_count]
  int rank_count() const { return static_cast<int>(ranks.size()); }
};

struct RowsOptions {
  int rank_count = 1;
  /// Relative speed of each rank, all > 0; empty means equal.
  std::vector<double> shares;
};

/// Cuts [0, total) at multiples of `multiple`, as near to the shares as that allows; the last
/// boundary is `total`. Ranges may be empty. REQUIRES: shares not empty, all > 0; total >= 0.
std::vector<Range> split_rows(int64_t total, const std::vector<double>& shares, int64_t multiple);

/// Errors: kInvalidArgument for a rank count outside [1, kRanksMax] or shares that do not fit it.
base::Result<Plan> plan_rows(const model::ModelSpec& spec, const RowsOptions& options);

/// The plan in a few lines for people: what each rank owns of the first layer and of the
/// vocabulary, which KV heads are kept by more than one rank and what that costs, which ranks own
/// no head.
std::string describe(const Plan& plan, const model::ModelSpec& spec);

}  // namespace plan
