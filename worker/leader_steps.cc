// The half of Leader that runs steps and makes chunks of what they gave.
#include <algorithm>

#include "base/cat.h"
#include "worker/leader.h"
#include "worker/scoring.h"

namespace worker {

base::Status Leader::run_step(const engine::Step& step, base::TimeNs now) {
  const base::Result<engine::StepOutput> output = runner_.run(step);
  if (!output.ok()) return output.error();
  stats_.steps++;
  stats_.columns += step.columns.size();
  batcher_.complete();
  for (const Part& part : batcher_.parts()) on_part(part, *output, now);
  return {};
}

void Leader::on_part(const Part& part, const engine::StepOutput& output, base::TimeNs now) {
  for (int column = part.first_column; column < part.first_column + part.column_count; column++) {
    const int32_t layer = output.fault_layer[static_cast<size_t>(column)];
    if (layer < 0) continue;
    finish(part.id, proto::Finish::kError,
           {base::Code::kBrokenFile,
            base::cat(layer == engine::kLogitsFault
                          ? std::string("the output gave logits")
                          : base::cat("the router of layer ", layer, " gave scores"),
                      " that are not finite at position ",
                      part.first_position + column - part.first_column,
                      "; the weights of this file overflow on this input")},
           now);
    return;
  }
  batcher_.seal(part.id);
  if (requests_.at(part.id).scores) {
    on_scored(part, output, now);
  } else if (part.logits_count > 0) {
    const auto vocabulary = static_cast<size_t>(shape_.vocabulary);
    const auto row = static_cast<size_t>(part.first_logits + part.logits_count - 1);
    on_generated(part, output.logits.subspan(row * vocabulary, vocabulary), now);
  }
}

void Leader::on_generated(const Part& part, std::span<const float> logits, base::TimeNs now) {
  Request& request = requests_.at(part.id);
  const proto::GenerateRequest& spec = request.generate;
  const int32_t token = sampler_.sample(logits, request.sampling, part.tokens,
                                        {.seed = request.sampling.seed,
                                         .prompt_index = spec.prompt_index,
                                         .choice_index = spec.choice_index,
                                         .position = part.tokens.size()});
  request.generated_tokens++;
  proto::TokenChunk chunk{.request_id = part.id,
                          .index = request.next_index,
                          .tokens = {token},
                          .finish = finish_at(request, token)};
  if (chunk.finish == proto::Finish::kNone) {
    batcher_.append(part.id, token);
  } else {
    chunk.usage = {request.prompt_tokens, request.generated_tokens};
    request.finished = true;
    batcher_.remove(part.id);
  }
  emit(request, std::move(chunk), now);
  if (request.unacknowledged.size() >= options_.unacknowledged_max)
    batcher_.set_paused(part.id, true);
}

void Leader::on_scored(const Part& part, const engine::StepOutput& output, base::TimeNs now) {
  Request& request = requests_.at(part.id);
  const proto::ScoreRequest& spec = request.score;
  const auto tokens = static_cast<int64_t>(part.tokens.size());
  const auto vocabulary = static_cast<size_t>(shape_.vocabulary);
  proto::ScoreChunk chunk{.request_id = part.id,
                          .index = request.next_index,
                          .first_position = part.first_position,
                          .position_count = part.column_count};
  if (spec.want_top)
    chunk.top_count = static_cast<int>(std::min<int64_t>(proto::kTopCount, shape_.vocabulary));
  const int64_t end = part.first_position + part.column_count;
  for (int i = 0; i < part.logits_count; i++) {
    const int64_t position = end - part.logits_count + i;
    const auto row = static_cast<size_t>(part.first_logits + i);
    const auto logits = output.logits.subspan(row * vocabulary, vocabulary);
    if (spec.want_top) append_best(logits, chunk.top_count, chunk.top_ids, chunk.top_logits);
    if (position + 1 < tokens && position + 1 >= spec.first_scored)
      chunk.log_probabilities.push_back(
          log_probability(logits, part.tokens[static_cast<size_t>(position + 1)]));
    if (spec.want_last && position + 1 == tokens)
      chunk.last_logits.assign(logits.begin(), logits.end());
  }
  if (end == tokens) {
    chunk.finish = proto::Finish::kStop;
    request.finished = true;
    batcher_.remove(part.id);
  }
  emit(request, std::move(chunk), now);
  if (request.unacknowledged.size() >= options_.unacknowledged_max)
    batcher_.set_paused(part.id, true);
}

}  // namespace worker
