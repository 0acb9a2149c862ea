// Which experts a token goes to, and with what weights.
#pragma once

#include <cstdint>

#include "kernels/ops.h"
#include "model/model.h"

namespace engine {

/// Chooses `experts.used` distinct experts by their scores, best first, the lower id on a tie, and
/// their weights. `logits` [experts.count] are overwritten by the scores. Returns false if a logit
/// is not finite: then the first experts are chosen with weight 0. All threads and ranks get the
/// same.
bool route(const model::Experts& experts, const kernels::Ops& ops, float* logits, int32_t* chosen,
           float* weights);

}  // namespace engine
