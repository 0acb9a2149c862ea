#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cat.h"
#include "base/check.h"
#include "kernels/math.h"

namespace engine {

namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kHighest = std::numeric_limits<float>::max();

/// Finite, so that no later difference or product is NaN. Without branches: a loop over all logits
/// becomes one over vectors.
float clamped(float logit) {
  const float bounded = logit > kLowest ? logit : kLowest;  // also NaN
  return bounded < kHighest ? bounded : kHighest;
}

base::Error bad(const char* field, auto value, const char* rule) {
  return {base::Code::kInvalidArgument, base::cat(field, " is ", value, "; it must be ", rule)};
}

base::Result<void> check_bias(const SamplingParams& params, int64_t vocabulary) {
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocabulary)
      return base::Error{
          base::Code::kInvalidArgument,
          base::cat("logit_bias names token ", id, "; ids go from 0 to ", vocabulary - 1)};
    if (!(bias >= -kBiasMax && bias <= kBiasMax))
      return base::Error{
          base::Code::kInvalidArgument,
          base::cat("logit_bias of token ", id, " is ", bias, "; it must be between -100 and 100")};
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end())
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("logit_bias names token ", *twice, " twice; give it one value")};
  return {};
}

}  // namespace

base::Result<void> check(const SamplingParams& params, int64_t vocabulary) {
  const SamplingParams& p = params;
  if (!(std::isfinite(p.temperature) && p.temperature >= 0))
    return bad("temperature", p.temperature, "a number of at least 0");
  if (p.top_k < 0) return bad("top_k", p.top_k, "at least 0 (0 is off)");
  if (!(p.top_p >= 0 && p.top_p <= 1)) return bad("top_p", p.top_p, "between 0 and 1");
  if (!(p.min_p >= 0 && p.min_p <= 1)) return bad("min_p", p.min_p, "between 0 and 1");
  if (!(std::isfinite(p.repeat_penalty) && p.repeat_penalty > 0))
    return bad("repeat_penalty", p.repeat_penalty, "a number greater than 0 (1 is off)");
  if (!(p.presence_penalty >= -2 && p.presence_penalty <= 2))
    return bad("presence_penalty", p.presence_penalty, "between -2 and 2");
  if (!(p.frequency_penalty >= -2 && p.frequency_penalty <= 2))
    return bad("frequency_penalty", p.frequency_penalty, "between -2 and 2");
  if (p.penalty_window < -1)
    return bad("penalty_window", p.penalty_window, "at least -1 (-1 is the whole history)");
  return check_bias(params, vocabulary);
}

Sampler::Sampler(int64_t token_count, int64_t vocabulary)
    : ops_(*kernels::find_ops("auto")),
      token_count_(token_count),
      vocabulary_(vocabulary),
      counts_(static_cast<size_t>(token_count)),
      ranking_(token_count),
      weights_(static_cast<size_t>(token_count)) {
  CHECK(1 <= token_count && token_count <= vocabulary, "token_count ", token_count, ", vocabulary ",
        vocabulary);
}

int32_t Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                        std::span<const int32_t> history, const base::DrawKey& key) {
  CHECK(static_cast<int64_t>(logits.size()) == vocabulary_, logits.size(), " logits for ",
        vocabulary_, " rows");
  load(logits, params);
  penalise(params, history);
  ranking_.begin(keep_forced(params));
  if (params.temperature == 0) return ranking_.best().id;
  const bool filters =
      (params.top_k > 0 && params.top_k < ranking_.count()) || params.top_p < 1 || params.min_p > 0;
  if (!filters) return draw_of_all(params, key);
  return draw_of_best(filter(params), params, key);
}

/// Logits in order of id, biased.
void Sampler::load(std::span<const float> logits, const SamplingParams& params) {
  const std::span<float> scores = ranking_.scores();
  const float* from = logits.data();
  float* to = scores.data();
  for (size_t i = 0; i < scores.size(); i++) to[i] = clamped(from[i]);
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= token_count_) continue;
    float& logit = scores[static_cast<size_t>(id)];
    logit = bias <= -kBiasMax ? kLowest : clamped(logit + bias);
  }
}

void Sampler::penalise(const SamplingParams& params, std::span<const int32_t> history) {
  if (params.repeat_penalty == 1 && params.presence_penalty == 0 && params.frequency_penalty == 0)
    return;
  size_t window = history.size();
  if (params.penalty_window >= 0)
    window = std::min(window, static_cast<size_t>(params.penalty_window));
  const auto recent = history.last(window);
  for (const int32_t id : recent)
    if (id >= 0 && id < token_count_) counts_[static_cast<size_t>(id)]++;

  for (const int32_t id : recent) {
    if (id < 0 || id >= token_count_) continue;
    const auto index = static_cast<size_t>(id);
    const int32_t count = std::exchange(counts_[index], 0);
    float& logit = ranking_.scores()[index];
    if (count == 0 || logit == kLowest) continue;  // done already, or banned
    if (logit > 0) {
      logit /= params.repeat_penalty;
    } else {
      logit *= params.repeat_penalty;
    }
    logit -= static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
    logit = clamped(logit);
  }
}

/// If some tokens are forced, takes all others out. How many are left.
int64_t Sampler::keep_forced(const SamplingParams& params) {
  const std::span<float> scores = ranking_.scores();
  size_t forced = 0;
  const auto for_each_forced = [&](auto work) {
    forced = 0;
    for (const auto& [id, bias] : params.logit_bias)
      if (bias >= kBiasMax && id >= 0 && id < token_count_) work(scores[static_cast<size_t>(id)]);
  };
  for_each_forced([&](float logit) { weights_[forced++] = logit; });
  if (forced == 0) return token_count_;
  std::fill(scores.begin(), scores.end(), Ranking::kOut);
  for_each_forced([&](float& logit) { logit = weights_[forced++]; });
  return static_cast<int64_t>(forced);
}

/// Weights of all, at this temperature, and their sum in order of id; of what is out it is 0.
double Sampler::total_weight(float temperature) {
  ops_->exp(ranking_.scores().data(), token_count_,
            {.offset = ranking_.best().score, .divisor = temperature}, weights_.data());
  double total = 0;
  for (int64_t i = 0; i < token_count_; i++) {
    total += static_cast<double>(weights_[static_cast<size_t>(i)]);
  }
  return total;
}

/// How many of the best top-k, top-p (over what top-k kept) and min-p let through, at least one;
/// the second and later ones are not banned.
int64_t Sampler::filter(const SamplingParams& params) {
  const bool every = params.top_k == 0 || params.top_k >= ranking_.count();
  const int64_t top_k = every ? ranking_.count() : params.top_k;
  const bool nucleus = params.top_p < 1;
  const bool has_weights = every && nucleus;
  const auto weight = [&](const Ranked& ranked) {
    return static_cast<double>(has_weights
                                   ? weights_[static_cast<size_t>(ranked.id)]
                                   : kernels::exp_f32(ranked.score - ranking_.best().score));
  };
  double total = 0;  // of what top-k keeps; the whole vocabulary needs no sorting for it
  if (has_weights) total = total_weight(1);
  for (int64_t place = 0; !every && nucleus && place < top_k; place++)
    total += weight(ranking_.at(place));

  const double wanted = nucleus ? static_cast<double>(params.top_p) * total : total;
  double mass = 0;
  int64_t kept = 0;
  while (kept < top_k) {
    const Ranked& candidate = ranking_.at(kept);
    const double w = weight(candidate);
    if (kept > 0 && (w < static_cast<double>(params.min_p) || candidate.score == kLowest)) break;
    kept++;
    mass += w;
    if (nucleus && mass >= wanted) break;
  }
  return kept;
}

// Both draws invert the distribution function. The sum up to a candidate is made of the same
// operations as the total, and the product is less than that after rounding too, so the loops
// return.

/// In order of id.
int32_t Sampler::draw_of_all(const SamplingParams& params, const base::DrawKey& key) {
  const double target = base::draw_uniform(key) * total_weight(params.temperature);
  double mass = 0;
  for (int64_t i = 0; i < token_count_; i++) {
    mass += static_cast<double>(weights_[static_cast<size_t>(i)]);
    if (target < mass) return static_cast<int32_t>(i);
  }
  CHECK(false, "no token at ", target, " of ", mass);
  return ranking_.best().id;
}

/// Of the `kept` best, the worst of them first.
int32_t Sampler::draw_of_best(int64_t kept, const SamplingParams& params,
                              const base::DrawKey& key) {
  const auto weight = [&](int64_t place) {
    return static_cast<double>(
        kernels::exp_f32((ranking_.at(place).score - ranking_.best().score) / params.temperature));
  };
  double total = 0;
  for (int64_t place = kept - 1; place >= 0; place--) total += weight(place);
  const double target = base::draw_uniform(key) * total;
  double mass = 0;
  for (int64_t place = kept - 1; place >= 0; place--) {
    mass += weight(place);
    if (target < mass) return ranking_.at(place).id;
  }
  CHECK(false, "no token at ", target, " of ", mass);
  return ranking_.best().id;
}

}  // namespace engine
