#include "engine/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"

namespace engine {

namespace {

// The sum of chosen weights counts as at least this before they are divided by it (the smallest
// normal half-precision number, as in the models' published code).
constexpr float kWeightSumMin = 6.103515625e-5f;

// Marks what was taken or must not be. A key may be any finite number.
constexpr float kOut = -std::numeric_limits<float>::infinity();

// Index of the largest of keys [count], the lower one on a tie.
int32_t best_of(const float* keys, int32_t count) {
  return static_cast<int32_t>(std::max_element(keys, keys + count) - keys);
}

float group_key(const RouteArgs& args, const float* keys, int32_t size) {
  const int32_t best = best_of(keys, size);
  if (args.selection_bias == nullptr) return keys[best];
  float second = kOut;
  for (int32_t i = 0; i < size; i++) {
    if (i != best) second = std::max(second, keys[i]);
  }
  return size > 1 ? keys[best] + second : keys[best];
}

// Takes the experts of all but the best groups out of the choice.
void keep_best_groups(const RouteArgs& args) {
  const model::Experts& experts = args.experts;
  if (experts.groups <= 1 || experts.groups_used >= experts.groups) return;
  const int32_t size = experts.count / experts.groups;
  float* group_keys = args.keys + experts.count;
  for (int32_t g = 0; g < experts.groups; g++) {
    group_keys[g] = group_key(args, args.keys + g * size, size);
  }
  for (int i = 0; i < experts.groups_used; i++) {
    group_keys[best_of(group_keys, experts.groups)] = kOut;
  }
  for (int32_t g = 0; g < experts.groups; g++) {
    if (group_keys[g] != kOut) std::fill_n(args.keys + g * size, size, kOut);
  }
}

// Indices of the `used` largest of keys [count], best first, the lower one on a tie. One pass:
// few keys are better than the worst of those held.
void choose_best(const float* keys, int32_t count, int used, int32_t* chosen) {
  int held = 0;
  for (int32_t i = 0; i < count; i++) {
    if (held == used && !(keys[i] > keys[chosen[used - 1]])) continue;
    int place = held < used ? held++ : used - 1;
    for (; place > 0 && keys[i] > keys[chosen[place - 1]]; place--) {
      chosen[place] = chosen[place - 1];
    }
    chosen[place] = i;
  }
}

}  // namespace

bool route(const RouteArgs& args) {
  const model::Experts& experts = args.experts;
  float* scores = args.logits;
  const bool finite =
      std::all_of(scores, scores + experts.count, [](float x) { return std::isfinite(x); });
  if (!finite) {
    for (int i = 0; i < experts.used; i++) {
      args.chosen[i] = i;
      args.weights[i] = 0;
    }
    return false;
  }
  switch (experts.score) {
    case model::RouterScore::kSoftmax: args.ops.softmax(scores, experts.count); break;
    case model::RouterScore::kSigmoid:
      std::transform(scores, scores + experts.count, scores, kernels::sigmoid_f32);
      break;
    case model::RouterScore::kSoftmaxOfChosen: break;
  }
  std::copy_n(scores, experts.count, args.keys);
  if (args.selection_bias != nullptr) {
    args.ops.add(args.keys, args.selection_bias, experts.count, args.keys);
  }
  keep_best_groups(args);
  choose_best(args.keys, experts.count, experts.used, args.chosen);
  float sum = 0;
  for (int i = 0; i < experts.used; i++) {
    args.weights[i] = scores[args.chosen[i]];
    sum += args.weights[i];
  }
  if (experts.score == model::RouterScore::kSoftmaxOfChosen) {
    args.ops.softmax(args.weights, experts.used);
    sum = 1;
  }
  const float divisor = experts.normalise_weights ? std::max(sum, kWeightSumMin) : 1.0f;
  for (int i = 0; i < experts.used; i++) {
    args.weights[i] = args.weights[i] / divisor * experts.weight_scale;
  }
  return true;
}

}  // namespace engine
