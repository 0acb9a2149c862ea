#include "engine/router.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"

namespace engine {

namespace {

// The sum of chosen weights counts as at least this before they are divided by it (the smallest
// normal half-precision number, as in the models' published code).
constexpr float kWeightSumMin = 6.103515625e-5f;

}  // namespace

bool route(const model::Experts& experts, const kernels::Ops& ops, float* logits, int32_t* chosen,
           float* weights) {
  const bool finite =
      std::all_of(logits, logits + experts.count, [](float x) { return std::isfinite(x); });
  if (!finite) {
    for (int i = 0; i < experts.used; i++) {
      chosen[i] = i;
      weights[i] = 0;
    }
    return false;
  }
  if (experts.score == model::RouterScore::kSoftmax) {
    ops.softmax(logits, experts.count);
  } else {
    std::transform(logits, logits + experts.count, logits, kernels::sigmoid_f32);
  }
  float sum = 0;
  for (int i = 0; i < experts.used; i++) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts.count; e++) {
      const bool taken = std::find(chosen, chosen + i, e) != chosen + i;
      if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
    }
    chosen[i] = best;
    weights[i] = logits[best];
    sum += weights[i];
  }
  const float divisor = experts.normalise_weights ? std::max(sum, kWeightSumMin) : 1.0f;
  for (int i = 0; i < experts.used; i++) weights[i] = weights[i] / divisor * experts.weight_scale;
  return true;
}

}  // namespace engine
