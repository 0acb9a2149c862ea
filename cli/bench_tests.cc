#include "cli/bench_tests.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/limits.h"

namespace cli {

namespace {

base::Result<std::vector<int32_t>> list_of(const char* option, const std::string& text,
                                           int32_t min) {
  return text.empty() ? std::vector<int32_t>{} : parse_ids(option, text, min);
}

base::Error invalid(std::string message) {
  return {base::Code::kInvalidArgument, std::move(message)};
}

}  // namespace

std::string BenchTest::name() const {
  std::string text;
  if (prompt > 0) text = base::cat("pp", prompt);
  if (generated > 0) text += base::cat(text.empty() ? "tg" : "+tg", generated);
  if (sequences > 1) text += base::cat(" x", sequences);
  if (depth > 0) text += base::cat(" @ d", depth);
  return text;
}

// Sequences start one after the other, and the first ones generate until the last has begun.
int64_t BenchTest::context(int64_t chunk) const {
  const int64_t before = std::max<int64_t>(depth, 1);
  const int64_t starting = sequences == 1 ? 1 : sequences * (before / chunk + 2);
  return before + prompt + generated + starting + 2;
}

base::Result<std::vector<BenchTest>> bench_tests(const Options& options, int64_t chunk) {
  ASSIGN_OR_RETURN(const auto prompts, list_of("--n-prompt", options.bench_prompt, 0));
  ASSIGN_OR_RETURN(const auto generated, list_of("--n-gen", options.bench_generated, 0));
  ASSIGN_OR_RETURN(const auto pairs, list_of("--pg", options.bench_pairs, 0));
  ASSIGN_OR_RETURN(const auto depths, list_of("--n-depth", options.bench_depth, 0));
  ASSIGN_OR_RETURN(const auto sequences, list_of("--n-seq", options.bench_sequences, 1));
  if (pairs.size() % 2 != 0)
    return invalid("-pg takes pairs of a prompt's length and tokens to generate, as in 512,128");
  std::vector<BenchTest> tests;
  for (const int64_t depth : depths) {
    const bool has_prompts = !prompts.empty() || !pairs.empty();
    if (has_prompts && depth % chunk != 0 && (!pairs.empty() || prompts.back() > 0))
      return invalid(base::cat("-d ", depth, " is no multiple of the ", chunk,
                               " positions of a step, so a prompt behind it cannot be timed; use "
                               "one that is, --chunk, or -p 0"));
    for (const int64_t prompt : prompts)
      if (prompt > 0) tests.push_back({.prompt = prompt, .generated = 0, .depth = depth});
    for (const int64_t count : sequences) {
      if (count > base::kStepSequencesMax)
        return invalid(base::cat("-b ", count, " is more than the ", base::kStepSequencesMax,
                                 " sequences of a step"));
      for (const int64_t n : generated)
        if (n > 0)
          tests.push_back({.prompt = 0, .generated = n, .depth = depth, .sequences = count});
    }
    for (size_t i = 0; i < pairs.size(); i += 2)
      if (pairs[i] + pairs[i + 1] > 0)
        tests.push_back({.prompt = pairs[i], .generated = pairs[i + 1], .depth = depth});
  }
  if (tests.empty()) return invalid("there is nothing to measure: give -p, -n or -pg");
  return tests;
}

BenchMean mean_of(const std::vector<double>& samples) {
  if (samples.empty()) return {};
  double sum = 0;
  for (const double sample : samples) sum += sample;
  const auto count = static_cast<double>(samples.size());
  BenchMean result{.mean = sum / count};
  if (samples.size() < 2) return result;
  double squares = 0;
  for (const double sample : samples) squares += (sample - result.mean) * (sample - result.mean);
  result.deviation = std::sqrt(squares / (count - 1));
  return result;
}

}  // namespace cli
