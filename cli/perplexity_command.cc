// How well a model predicts a text: exp of the mean negative log-probability of its tokens.
//
// The text is cut into chunks of --ctx tokens, whole ones only, no BOS; in each the tokens of the
// second half are scored, so that every scored token has at least half a chunk of context.
#include <cmath>
#include <cstdio>

#include "base/cat.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/progress.h"

namespace cli {

namespace {

constexpr int64_t kDefaultContext = 512;

/// Mean of negative log-probabilities and the error of that mean.
struct Measure {
  double sum = 0, sum_of_squares = 0;
  int64_t count = 0;

  void add(float log_probability) {
    const double loss = -static_cast<double>(log_probability);
    sum += loss;
    sum_of_squares += loss * loss;
    count++;
  }
  double perplexity() const { return std::exp(sum / static_cast<double>(count)); }
  double error() const {
    if (count < 2) return 0;
    const double mean = sum / static_cast<double>(count);
    const double variance = sum_of_squares / static_cast<double>(count) - mean * mean;
    return perplexity() * std::sqrt(std::max(variance, 0.0) / static_cast<double>(count - 1));
  }
};

}  // namespace

base::Status perplexity(Context& context) {
  Options options = context.options;
  if (options.context == 0) options.context = kDefaultContext;
  if (options.context < 4)
    return base::Error{base::Code::kInvalidArgument, "--ctx must be at least 4 for perplexity"};
  const auto chunk_tokens = static_cast<size_t>(options.context);
  ASSIGN_OR_RETURN(const std::string text, read_file(options.file, context.signals));
  std::vector<int32_t> tokens;
  {
    ASSIGN_OR_RETURN(const ModelText model, open_text(options.model, context.log));
    tokens = model.tokenizer.encode(text, {});
  }
  const size_t chunks = tokens.size() / chunk_tokens;
  if (chunks == 0)
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat(options.file, " has ", tokens.size(), " tokens, fewer than one chunk of ",
                  chunk_tokens, "; choose a longer text or a smaller --ctx")};
  Context with_context{options, context.signals, context.factory, context.log};
  ASSIGN_OR_RETURN(const auto cluster, start_cluster(with_context));
  Measure measure;
  {
    Progress progress(stderr, style_for(stderr), "measuring");
    for (size_t chunk = 0; chunk < chunks; chunk++) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(chunk * chunk_tokens);
      proto::ScoreRequest request;
      request.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(chunk_tokens));
      request.first_scored = static_cast<int64_t>(chunk_tokens / 2);
      ASSIGN_OR_RETURN(const Scored scored, cluster->score(std::move(request), {}));
      for (const float log_probability : scored.log_probabilities) measure.add(log_probability);
      progress.update(chunk + 1, chunks, "chunks");
    }
  }
  char line[200];
  std::snprintf(line, sizeof line,
                "perplexity %.4f ± %.4f (%zu chunks of %zu tokens, %lld scored)\n",
                measure.perplexity(), measure.error(), chunks, chunk_tokens,
                static_cast<long long>(measure.count));
  RETURN_IF_ERROR(print(line));
  if (options.stats) RETURN_IF_ERROR(print_stats(*cluster));
  return {};
}

}  // namespace cli
