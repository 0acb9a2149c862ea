// Picks the next token from logits: bias, penalties, top-k, top-p, min-p, temperature, draw.
//
// That is llama-server's default order ("penalties; …; top_k; …; top_p; min_p; …; temperature", the
// bias before the chain). Temperature comes last, so the filters see the model's own probabilities:
// a hot temperature never lets through what min-p would stop. After bias and penalties all is
// decided in one total order, greater logit first and then lower id; each filter keeps a prefix of
// it, never an empty one. The result is a function of the arguments alone (IEEE operations in a
// fixed order, our own exp), so batching, threads and restarts cannot change it.
//
// A Sampler is scratch space: no state passes from one sample() to the next, and none allocates.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "engine/buffer.h"
#include "engine/ranking.h"
#include "kernels/ops.h"

namespace engine {

/// A bias of -100 bans a token, +100 leaves only the tokens so forced; others are added.
inline constexpr float kBiasMax = 100;

struct SamplingParams {
  float temperature = 0.8f;     // 0: the best token, the lowest id on a tie, without a draw
  int32_t top_k = 40;           // keep that many; 0: off
  float top_p = 0.95f;          // keep the fewest that reach this share of what top-k kept; 1: off
  float min_p = 0.05f;          // drop what is less likely than this times the best; 0: off
  float repeat_penalty = 1;     // divides positive, multiplies negative logits; 1: off
  float presence_penalty = 0;   // subtracted once if the token occurred
  float frequency_penalty = 0;  // subtracted for each occurrence
  int32_t penalty_window = 64;  // last tokens that the three penalties look at; 0: none, -1: all
  uint64_t seed = 0;            // goes into DrawKey::seed
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token id, -100 … 100), an id at most once
};

/// kInvalidArgument naming the field and the value, unless sample() can use `params`. `vocabulary`
/// bounds the ids of logit_bias: pass the count of tokens that can be produced.
base::Result<void> check(const SamplingParams& params, int64_t vocabulary);

class Sampler {
 public:
  /// Ids in [token_count, vocabulary) are rows without a piece and never produced.
  /// REQUIRES: 1 <= token_count <= vocabulary.
  Sampler(int64_t token_count, int64_t vocabulary);

  /// The next token, in [0, token_count). `logits` is [vocabulary], `history` prompt and generated
  /// tokens. Logits that are NaN count as the smallest. REQUIRES: check(params, …) succeeded.
  int32_t sample(std::span<const float> logits, const SamplingParams& params,
                 std::span<const int32_t> history, const base::DrawKey& key);

 private:
  void load(std::span<const float> logits, const SamplingParams& params);
  void penalise(const SamplingParams& params, std::span<const int32_t> history);
  int64_t keep_forced(const SamplingParams& params);
  int64_t filter(const SamplingParams& params);
  double total_weight(float temperature);
  int32_t draw_of_all(const SamplingParams& params, const base::DrawKey& key);
  int32_t draw_of_best(int64_t kept, const SamplingParams& params, const base::DrawKey& key);

  const kernels::Ops* ops_;  // of any instruction set: exp has the same bits in all
  int64_t token_count_;
  int64_t vocabulary_;
  std::vector<int32_t> counts_;  // [token_count] occurrences, all zero between calls
  Ranking ranking_;              // of token_count logits
  Buffer<float> weights_;        // [token_count]
};

}  // namespace engine
