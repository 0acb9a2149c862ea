#include "worker/scoring.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/math.h"

namespace worker {

namespace {

constexpr int kCountMax = 64;
constexpr double kNegligible = -100;

float ordered(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

}  // namespace

float log_probability(std::span<const float> logits, int32_t token) {
  CHECK(token >= 0 && static_cast<size_t>(token) < logits.size(), "token ", token);
  const double best = ordered(*std::max_element(
      logits.begin(), logits.end(), [](float a, float b) { return ordered(a) < ordered(b); }));
  double sum = 0;
  for (const float logit : logits) {
    const double difference = static_cast<double>(logit) - best;
    // Smaller ones would be less than the rounding of the sum.
    if (difference > kNegligible) sum += kernels::exp_f64(difference);
  }
  return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - best -
                            kernels::log_f64(sum));
}

void append_best(std::span<const float> logits, int count, std::vector<int32_t>& ids,
                 std::vector<float>& values) {
  CHECK(count >= 0 && count <= kCountMax && static_cast<size_t>(count) <= logits.size(), "count ",
        count);
  std::array<int32_t, kCountMax> best;  // [held], best first
  int held = 0;
  for (int32_t id = 0; static_cast<size_t>(id) < logits.size(); id++) {
    const float logit = ordered(logits[static_cast<size_t>(id)]);
    const auto value = [&](int place) {
      return ordered(logits[static_cast<size_t>(best[static_cast<size_t>(place)])]);
    };
    if (held == count && (count == 0 || !(logit > value(held - 1)))) continue;
    int place = held < count ? held++ : held - 1;
    for (; place > 0 && logit > value(place - 1); place--)
      best[static_cast<size_t>(place)] = best[static_cast<size_t>(place - 1)];
    best[static_cast<size_t>(place)] = id;
  }
  for (int place = 0; place < held; place++) {
    const int32_t id = best[static_cast<size_t>(place)];
    ids.push_back(id);
    values.push_back(logits[static_cast<size_t>(id)]);
  }
}

}  // namespace worker
