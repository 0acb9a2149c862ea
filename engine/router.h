// Which experts a token goes to, and with what weights.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "model/model.h"

namespace engine {

struct RouteArgs {
  const model::Experts& experts;
  const kernels::Ops& ops;
  float* logits;                          // [experts.count], overwritten
  const float* selection_bias = nullptr;  // [experts.count] or nullptr
  float* keys;                            // [2 * experts.count] scratch: what the choice goes by
  int32_t* chosen;                        // [experts.used]
  float* weights;                         // [experts.used]
};

/// Chooses distinct experts by their scores plus bias, best first, the lower id on a tie, and their
/// weights, which come from the scores alone. With groups only experts of the best groups count: a
/// group is as good as its best expert (DeepSeek-V2) or, with a bias, as the sum of its two best
/// (DeepSeek-V3, arXiv 2412.19437). Returns false if a logit is not finite: then the first experts
/// are chosen with weight 0. All threads and ranks get the same.
bool route(const RouteArgs& args);

}  // namespace engine
