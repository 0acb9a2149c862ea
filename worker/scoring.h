// What a score request wants to know of one row of logits.
//
// For measuring, not for choosing tokens: the sampler decides those. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace worker {

/// Natural logarithm of the softmax of `logits` [vocabulary] at `token`, summed in double.
/// REQUIRES: 0 <= token < vocabulary.
float log_probability(std::span<const float> logits, int32_t token);

/// Appends the `count` best, best first, lower id first among equals; NaN counts as the smallest.
/// REQUIRES: count <= logits.size().
void append_best(std::span<const float> logits, int count, std::vector<int32_t>& ids,
                 std::vector<float>& values);

}  // namespace worker
