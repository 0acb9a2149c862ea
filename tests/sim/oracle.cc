#include "tests/sim/oracle.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/math.h"

namespace sim {

namespace {

std::vector<float> logits_of(const OracleModel& model, uint64_t state) {
  std::vector<float> logits(static_cast<size_t>(model.runner.vocabulary));  // [vocabulary]
  for (size_t id = 0; id < logits.size(); id++)
    logits[id] = worker::scripted_logit(state, static_cast<int64_t>(id));
  return logits;
}

std::optional<base::Code> doomed_by(const OracleModel& model, const std::vector<int32_t>& tokens,
                                    int64_t positions) {
  if (positions > int64_t{model.runner.kv_block_count} * base::kKvBlockPositions)
    return base::Code::kNoSpace;
  if (std::find(tokens.begin(), tokens.end(), model.runner.poison) != tokens.end())
    return base::Code::kBrokenFile;
  return std::nullopt;
}

int64_t generated_max(const OracleModel& model, const proto::GenerateRequest& request) {
  // The last token of a full context is chosen and never read back in.
  const int64_t room = model.runner.context + 1 - static_cast<int64_t>(request.prompt.size());
  return request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;
}

}  // namespace

std::optional<base::Code> doomed(const OracleModel& model, const proto::GenerateRequest& request) {
  if (request.sampling.top_p > 1) return base::Code::kInvalidArgument;
  return doomed_by(model, request.prompt,
                   static_cast<int64_t>(request.prompt.size()) + generated_max(model, request) - 1);
}

std::optional<base::Code> doomed(const OracleModel& model, const proto::ScoreRequest& request) {
  return doomed_by(model, request.tokens, static_cast<int64_t>(request.tokens.size()));
}

GenerateOracle::GenerateOracle(const OracleModel& model, proto::GenerateRequest request)
    : model_(model),
      request_(std::move(request)),
      sampler_(model.token_count, model.runner.vocabulary),
      tokens_(request_.prompt) {
  const proto::Sampling& from = request_.sampling;
  sampling_.temperature = from.temperature;
  sampling_.top_k = from.top_k;
  sampling_.top_p = from.top_p;
  sampling_.min_p = from.min_p;
  sampling_.repeat_penalty = from.repeat_penalty;
  sampling_.presence_penalty = from.presence_penalty;
  sampling_.frequency_penalty = from.frequency_penalty;
  sampling_.penalty_window = from.penalty_window;
  sampling_.seed = from.seed;
  sampling_.logit_bias = from.logit_bias;
  for (const int32_t token : tokens_) state_ = worker::scripted_state(state_, token);
}

GenerateOracle::Next GenerateOracle::next() {
  CHECK(!ended_, "tokens after the end");
  Next next;
  next.token = sampler_.sample(logits_of(model_, state_), sampling_, tokens_,
                               {.seed = request_.sampling.seed,
                                .prompt_index = request_.prompt_index,
                                .choice_index = request_.choice_index,
                                .position = tokens_.size()});
  tokens_.push_back(next.token);
  state_ = worker::scripted_state(state_, next.token);
  generated_++;
  const auto& stops = request_.stop_tokens;
  if (std::find(stops.begin(), stops.end(), next.token) != stops.end()) {
    next.finish = proto::Finish::kStop;
  } else if (generated_ == generated_max(model_, request_)) {
    next.finish = proto::Finish::kLength;
  }
  ended_ = next.finish != proto::Finish::kNone;
  return next;
}

ScoreAnswer score_oracle(const OracleModel& model, const proto::ScoreRequest& request) {
  ScoreAnswer answer;
  uint64_t state = worker::kScriptedStart;
  const auto count = static_cast<int64_t>(request.tokens.size());
  for (int64_t position = 0; position < count; position++) {
    state = worker::scripted_state(state, request.tokens[static_cast<size_t>(position)]);
    const std::vector<float> logits = logits_of(model, state);
    if (request.want_top) {
      std::vector<int32_t> ids(logits.size());
      for (size_t id = 0; id < ids.size(); id++) ids[id] = static_cast<int32_t>(id);
      std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      for (size_t place = 0; place < proto::kTopCount; place++) {
        answer.top_ids.push_back(ids[place]);
        answer.top_logits.push_back(logits[static_cast<size_t>(ids[place])]);
      }
    }
    if (position + 1 < count && position + 1 >= request.first_scored) {
      const double best = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (const float logit : logits) sum += kernels::exp_f64(static_cast<double>(logit) - best);
      const auto next = static_cast<size_t>(request.tokens[static_cast<size_t>(position + 1)]);
      answer.log_probabilities.push_back(
          static_cast<float>(static_cast<double>(logits[next]) - best - kernels::log_f64(sum)));
    }
    if (request.want_last && position + 1 == count) answer.last_logits = logits;
  }
  return answer;
}

}  // namespace sim
