// What `numoe bench` measures: the tests that its options name, in the order of llama-bench.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options.h"

namespace cli {

/// A prompt, then generated tokens behind it; one of both may be 0.
struct BenchTest {
  int64_t prompt = 0;     // tokens, computed in steps of --chunk
  int64_t generated = 0;  // tokens, one a step
  int64_t depth = 0;      // tokens that are in the cache before
  int64_t sequences = 1;  // that generate together

  /// "pp512", "tg128 @ d4096", "tg64 x8", "pp512+tg128".
  std::string name() const;
  /// Of all sequences.
  int64_t tokens() const { return (prompt + generated) * sequences; }
  /// Positions that a sequence of it needs.
  int64_t context(int64_t chunk) const;
};

/// Errors: kInvalidArgument naming the option: no test at all, a list that is none, pairs that are
/// none, a depth of a prompt that is no multiple of the chunk.
base::Result<std::vector<BenchTest>> bench_tests(const Options& options, int64_t chunk);

struct BenchMean {
  double mean = 0, deviation = 0;  // of samples; 0 for a single one
};
BenchMean mean_of(const std::vector<double>& samples);

}  // namespace cli
