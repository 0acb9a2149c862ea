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

/// Finite, so that no later difference or product is NaN.
float clamped(float logit) {
  if (!(logit > kLowest)) return kLowest;  // also NaN
  return std::min(logit, kHighest);
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
    : token_count_(token_count), vocabulary_(vocabulary) {
  CHECK(1 <= token_count && token_count <= vocabulary, "token_count ", token_count, ", vocabulary ",
        vocabulary);
  CHECK(vocabulary <= std::numeric_limits<int32_t>::max(), "ids are 32 bits");
  counts_.resize(static_cast<size_t>(token_count));
  candidates_.resize(static_cast<size_t>(token_count));
}

int32_t Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                        std::span<const int32_t> history, const base::DrawKey& key) {
  CHECK(static_cast<int64_t>(logits.size()) == vocabulary_, logits.size(), " logits for ",
        vocabulary_, " rows");
  load(logits, params);
  penalise(params, history);
  keep_forced(params);

  const std::span<const Candidate> all(candidates_.data(), static_cast<size_t>(candidate_count_));
  const Candidate best = *std::max_element(all.begin(), all.end(), worse);
  if (params.temperature == 0) return best.id;
  const auto kept = filter(params, best.logit);

  // Inverse of the distribution function. Both sums are the same operations, and the product is
  // less than `total` after rounding too, so the loop returns.
  const auto weight = [&](const Candidate& candidate) {
    return static_cast<double>(
        kernels::exp_f32((candidate.logit - best.logit) / params.temperature));
  };
  double total = 0;
  for (const Candidate& candidate : kept) total += weight(candidate);
  const double target = base::draw_uniform(key) * total;
  double mass = 0;
  for (const Candidate& candidate : kept) {
    mass += weight(candidate);
    if (target < mass) return candidate.id;
  }
  CHECK(false, "no token at ", target, " of ", mass);
  return best.id;
}

/// True if `a` comes after `b` in the order.
bool Sampler::worse(const Candidate& a, const Candidate& b) {
  return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
}

/// Candidates in order of id, biased.
void Sampler::load(std::span<const float> logits, const SamplingParams& params) {
  candidate_count_ = token_count_;
  for (int64_t i = 0; i < token_count_; i++) {
    const auto index = static_cast<size_t>(i);
    candidates_[index] = {clamped(logits[index]), static_cast<int32_t>(i)};
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= token_count_) continue;
    float& logit = candidates_[static_cast<size_t>(id)].logit;
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
    float& logit = candidates_[index].logit;
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

/// If some tokens are forced, drops all others. Runs while candidates_ are in order of id.
void Sampler::keep_forced(const SamplingParams& params) {
  int64_t forced = 0;
  for (const auto& [id, bias] : params.logit_bias) {
    if (bias < kBiasMax || id < 0 || id >= token_count_) continue;
    counts_[static_cast<size_t>(id)] = 1;
    forced++;
  }
  if (forced == 0) return;
  int64_t to = 0;
  for (int64_t from = 0; from < token_count_; from++)
    if (std::exchange(counts_[static_cast<size_t>(from)], 0) != 0)
      candidates_[static_cast<size_t>(to++)] = candidates_[static_cast<size_t>(from)];
  candidate_count_ = to;
}

/// The candidate at `rank` of the order, 0 = best; sorts only as far as anybody asks.
const Sampler::Candidate& Sampler::ranked(int64_t rank) {
  const auto begin = candidates_.begin();
  while (ranked_count_ <= rank) {
    std::pop_heap(begin, begin + (candidate_count_ - ranked_count_), worse);
    ranked_count_++;
  }
  return candidates_[static_cast<size_t>(candidate_count_ - 1 - rank)];
}

/// The candidates that top-k, top-p (over what top-k kept) and min-p let through, at least one; the
/// second and later ones are not banned. In order of id if nothing filters, else worst first.
std::span<const Sampler::Candidate> Sampler::filter(const SamplingParams& params,
                                                    float best_logit) {
  const bool every = params.top_k == 0 || params.top_k >= candidate_count_;
  const int64_t top_k = every ? candidate_count_ : params.top_k;
  const bool nucleus = params.top_p < 1;
  const auto count = static_cast<size_t>(candidate_count_);
  if (every && !nucleus && params.min_p == 0) return {candidates_.data(), count};

  const auto weight = [&](const Candidate& candidate) {
    return static_cast<double>(kernels::exp_f32(candidate.logit - best_logit));
  };
  double total = 0;  // of what top-k keeps; the whole vocabulary needs no sorting for it
  if (every && nucleus)
    for (int64_t i = 0; i < candidate_count_; i++)
      total += weight(candidates_[static_cast<size_t>(i)]);
  std::make_heap(candidates_.begin(), candidates_.begin() + candidate_count_, worse);
  ranked_count_ = 0;
  if (!every && nucleus)
    for (int64_t rank = 0; rank < top_k; rank++) total += weight(ranked(rank));

  const double wanted = nucleus ? static_cast<double>(params.top_p) * total : total;
  double mass = 0;
  int64_t kept = 0;
  while (kept < top_k) {
    const Candidate& candidate = ranked(kept);
    const double w = weight(candidate);
    if (kept > 0 && (w < static_cast<double>(params.min_p) || candidate.logit == kLowest)) break;
    kept++;
    mass += w;
    if (nucleus && mass >= wanted) break;
  }
  return {candidates_.data() + (candidate_count_ - kept), static_cast<size_t>(kept)};
}

}  // namespace engine
