#include "cli/bench_run.h"

#include <ctime>

#include "base/rng.h"

namespace cli {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// What happened between two answers; what is no count is of the later one.
proto::StatsReply between(const proto::StatsReply& before, proto::StatsReply after) {
  using Reply = proto::StatsReply;
  for (const auto field :
       {&Reply::steps, &Reply::columns, &Reply::step_ns, &Reply::prefill_columns,
        &Reply::prefill_ns, &Reply::decode_columns, &Reply::decode_ns, &Reply::wait_ns,
        &Reply::matmul_ns, &Reply::attention_ns, &Reply::exchange_ns, &Reply::barrier_ns,
        &Reply::sample_ns, &Reply::weight_bytes, &Reply::kv_blocks_reused})
    after.*field -= before.*field;
  return after;
}

/// Packed weights that all ranks together read in a step.
double bytes_per_step(const std::vector<proto::StatsReply>& ranks) {
  double bytes = 0;
  for (const proto::StatsReply& rank : ranks)
    if (rank.steps > 0)
      bytes += static_cast<double>(rank.weight_bytes) / static_cast<double>(rank.steps);
  return bytes;
}

base::Error too_few_tokens() {
  return {base::Code::kSystem, "the workers gave fewer tokens than they were asked for"};
}

}  // namespace

std::vector<double> BenchResult::tokens_per_second() const {
  std::vector<double> speeds;
  for (const base::TimeNs ns : samples)
    speeds.push_back(static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(ns));
  return speeds;
}

std::vector<int32_t> BenchRunner::draw_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; i++) {
    // Never the same again, so that no prompt is found in the cache.
    const double draw = base::draw_uniform({.seed = options_.seed, .position = drawn_++});
    tokens.push_back(static_cast<int32_t>(draw * static_cast<double>(options_.vocabulary)));
  }
  return tokens;
}

// The best token every time: choosing it costs least, and what it is does not matter.
proto::GenerateRequest BenchRunner::request(int64_t prompt, int64_t generated) {
  proto::GenerateRequest request;
  request.prompt = draw_tokens(std::max<int64_t>(prompt, 1));
  request.max_tokens = generated;
  request.sampling.temperature = 0;
  return request;
}

base::Status BenchRunner::warm_up() {
  constexpr int64_t kGenerated = 4;
  RETURN_IF_ERROR(time_prompt({.prompt = kWarmUpPrompt}));
  ASSIGN_OR_RETURN(const auto before, cluster_.stats());
  ASSIGN_OR_RETURN(const Generated generated,
                   cluster_.generate(request(1, kGenerated),
                                     [](std::span<const int32_t>) { return Continue::kYes; }));
  if (generated.tokens.size() != kGenerated) return too_few_tokens();
  ASSIGN_OR_RETURN(auto after, cluster_.stats());
  for (size_t rank = 0; rank < after.size(); rank++)
    after[rank] = between(before[rank], after[rank]);
  bytes_per_step_ = bytes_per_step(after);
  return {};
}

base::Result<BenchResult> BenchRunner::run(const BenchTest& test,
                                           const std::function<void(int)>& on_sample) {
  BenchResult result{.test = test, .started_at = utc_now()};
  ASSIGN_OR_RETURN(const double ceiling_before, ceiling_.measure());
  ASSIGN_OR_RETURN(const auto before, cluster_.stats());
  for (int i = 0; i < options_.repetitions; i++) {
    ASSIGN_OR_RETURN(const base::TimeNs ns, sample(test));
    result.samples.push_back(std::max<base::TimeNs>(ns, 1));
    if (on_sample) on_sample(i + 1);
  }
  ASSIGN_OR_RETURN(result.stats, cluster_.stats());
  ASSIGN_OR_RETURN(const double ceiling_after, ceiling_.measure());
  result.ceiling_gb_per_s = (ceiling_before + ceiling_after) / 2;
  for (size_t rank = 0; rank < result.stats.size(); rank++)
    result.stats[rank] = between(before[rank], result.stats[rank]);
  if (test.prompt > 0) return result;
  // With a prompt before them the steps of several sequences are not alone in the figures.
  if (test.sequences > 1 && (test.depth > 1 || bytes_per_step_ <= 0)) return result;
  if (test.sequences > 1) result.step_reads = bytes_per_step(result.stats) / bytes_per_step_;
  const double steps_per_second =
      mean_of(result.tokens_per_second()).mean / static_cast<double>(test.sequences);
  result.gb_per_s =
      static_cast<double>(options_.active_bytes) * result.step_reads * steps_per_second / 1e9;
  return result;
}

base::Result<base::TimeNs> BenchRunner::sample(const BenchTest& test) {
  if (test.generated == 0) return time_prompt(test);
  return test.prompt == 0 ? time_generation(test) : time_pair(test);
}

// From the request, or from the step that ended at the depth, to the last position.
base::Result<base::TimeNs> BenchRunner::time_prompt(const BenchTest& test) {
  const base::SteadyClock clock;
  proto::ScoreRequest score;
  score.tokens = draw_tokens(test.depth + test.prompt);
  base::TimeNs begin = clock.now();
  RETURN_IF_ERROR(cluster_.score(std::move(score), [&](int64_t positions) {
    if (positions <= test.depth) begin = clock.now();
  }));
  return clock.now() - begin;
}

// From the token with which the last of the sequences has begun, until there are as many more as
// were asked for; what sequences generate before that is not counted.
base::Result<base::TimeNs> BenchRunner::time_generation(const BenchTest& test) {
  const base::SteadyClock clock;
  const int64_t before = std::max<int64_t>(test.depth, 1);
  std::vector<proto::GenerateRequest> requests;
  const int64_t longest = cluster_.ready(0).context - before;
  for (int64_t s = 0; s < test.sequences; s++) requests.push_back(request(before, longest));
  std::vector<bool> begun(requests.size());
  size_t missing = requests.size();
  int64_t wanted = test.tokens();
  base::TimeNs begin = 0, end = 0;
  RETURN_IF_ERROR(cluster_.generate_together(std::move(requests),
                                             [&](size_t index, std::span<const int32_t> tokens) {
                                               if (missing == 0)
                                                 wanted -= static_cast<int64_t>(tokens.size());
                                               if (missing > 0 && !begun[index]) {
                                                 begun[index] = true;
                                                 if (--missing == 0) begin = clock.now();
                                               }
                                               if (wanted > 0) return Continue::kYes;
                                               if (end == 0) end = clock.now();
                                               return Continue::kNo;
                                             }));
  if (end == 0) return too_few_tokens();
  return end - begin;
}

base::Result<base::TimeNs> BenchRunner::time_pair(const BenchTest& test) {
  const base::SteadyClock clock;
  const std::vector<int32_t> prefix = draw_tokens(test.depth);
  const auto nothing = [](std::span<const int32_t>) { return Continue::kYes; };
  if (test.depth > 0) {
    // Its whole blocks are found again by the request that is timed.
    proto::GenerateRequest first = request(1, 1);
    first.prompt = prefix;
    RETURN_IF_ERROR(cluster_.generate(std::move(first), nothing));
  }
  proto::GenerateRequest timed = request(test.prompt, test.generated);
  timed.prompt.insert(timed.prompt.begin(), prefix.begin(), prefix.end());
  const base::TimeNs begin = clock.now();
  ASSIGN_OR_RETURN(const Generated generated, cluster_.generate(std::move(timed), nothing));
  const base::TimeNs end = clock.now();
  if (static_cast<int64_t>(generated.tokens.size()) != test.generated) return too_few_tokens();
  return end - begin;
}

}  // namespace cli
