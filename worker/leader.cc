#include "worker/leader.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"

namespace worker {

namespace {

engine::SamplingParams to_engine(const proto::Sampling& from) {
  return {.temperature = from.temperature,
          .top_k = from.top_k,
          .top_p = from.top_p,
          .min_p = from.min_p,
          .repeat_penalty = from.repeat_penalty,
          .presence_penalty = from.presence_penalty,
          .frequency_penalty = from.frequency_penalty,
          .penalty_window = from.penalty_window,
          .seed = from.seed,
          .logit_bias = from.logit_bias};
}

base::Error too_long(int64_t tokens, int64_t context) {
  return {base::Code::kInvalidArgument,
          base::cat("the prompt has ", tokens, " tokens, which exceeds the context of ", context,
                    "; shorten it or start with a larger --ctx")};
}

}  // namespace

Leader::Leader(engine::StepRunner& runner, LeaderOptions options)
    : runner_(runner),
      options_(options),
      shape_(runner.shape()),
      batcher_(shape_, options.sealed_blocks),
      sampler_(options.token_count, shape_.vocabulary) {
  stats_.kv_block_count = shape_.kv_block_count;
}

void Leader::on_generate(proto::GenerateRequest request, std::string trace_id, base::TimeNs now) {
  const uint64_t id = request.request_id;
  if (!has_room(id))
    return refuse(
        proto::TokenChunk{
            .request_id = id, .index = request.first_index, .finish = proto::Finish::kError},
        trace_id);
  Request* opened = open(id, std::move(trace_id));
  if (opened == nullptr) return;  // asked again because our answer was late or lost
  opened->next_index = request.first_index;
  opened->generate = std::move(request);
  const base::Status admitted = admit_generate(id, *opened, now);
  if (!admitted.ok()) finish(id, proto::Finish::kError, admitted.error(), now);
}

void Leader::on_score(proto::ScoreRequest request, std::string trace_id, base::TimeNs now) {
  const uint64_t id = request.request_id;
  if (!has_room(id))
    return refuse(proto::ScoreChunk{.request_id = id, .finish = proto::Finish::kError}, trace_id);
  Request* opened = open(id, std::move(trace_id));
  if (opened == nullptr) return;
  opened->scores = true;
  opened->score = std::move(request);
  const base::Status admitted = admit_score(id, *opened);
  if (!admitted.ok()) finish(id, proto::Finish::kError, admitted.error(), now);
}

bool Leader::has_room(uint64_t id) const {
  return requests_.size() < static_cast<size_t>(options_.requests_max) || requests_.contains(id);
}

// Nothing is kept of it: if this is lost, the request comes again and is looked at anew.
template <class Chunk>
void Leader::refuse(Chunk chunk, const std::string& trace_id) {
  chunk.error = {base::Code::kUnavailable,
                 base::cat(options_.requests_max, " requests are under way; try again later")};
  outbox_.push_back({std::move(chunk), trace_id});
}

Leader::Request* Leader::open(uint64_t id, std::string trace_id) {
  const auto [place, fresh] = requests_.try_emplace(id);
  outbox_.push_back({proto::Accepted{id}, trace_id});
  if (!fresh) return nullptr;
  place->second.trace_id = std::move(trace_id);
  return &place->second;
}

base::Status Leader::check_ids(const char* what, const std::vector<int32_t>& ids) const {
  for (const int32_t id : ids)
    if (id < 0 || id >= shape_.vocabulary)
      return base::Error{base::Code::kInvalidArgument,
                         base::cat("the ", what, " contain id ", id, "; this model has ids 0 … ",
                                   shape_.vocabulary - 1)};
  return {};
}

base::Status Leader::admit_generate(uint64_t id, Request& request, base::TimeNs now) {
  proto::GenerateRequest& spec = request.generate;
  const auto prompt_tokens = static_cast<int64_t>(spec.prompt.size());
  if (spec.prompt.empty())
    return base::Error{base::Code::kInvalidArgument, "the prompt has no tokens"};
  if (prompt_tokens > shape_.context) return too_long(prompt_tokens, shape_.context);
  RETURN_IF_ERROR(check_ids("prompt tokens", spec.prompt));
  RETURN_IF_ERROR(check_ids("generated tokens", spec.generated));
  RETURN_IF_ERROR(check_ids("stop tokens", spec.stop_tokens));
  request.sampling = to_engine(spec.sampling);
  RETURN_IF_ERROR(engine::check(request.sampling, options_.token_count));
  // The token after a full context can be chosen but not be read back in, so it is the last one.
  request.generated_max = shape_.context + 1 - prompt_tokens;
  if (spec.max_tokens > 0) request.generated_max = std::min(request.generated_max, spec.max_tokens);
  const int64_t positions_max = prompt_tokens + request.generated_max - 1;
  RETURN_IF_ERROR(batcher_.check_fits(positions_max));
  request.prompt_tokens = prompt_tokens;
  request.generated_tokens = static_cast<int64_t>(spec.generated.size());
  std::sort(spec.stop_tokens.begin(), spec.stop_tokens.end());
  if (!spec.generated.empty()) {
    // Only its end was lost.
    const proto::Finish how = finish_at(request, spec.generated.back());
    if (how != proto::Finish::kNone) {
      finish(id, how, {}, now);
      return {};
    }
  }
  std::vector<int32_t> tokens = std::move(spec.prompt);
  tokens.insert(tokens.end(), spec.generated.begin(), spec.generated.end());
  spec.generated = {};
  const auto known = static_cast<int64_t>(tokens.size());
  batcher_.add({.id = id,
                .tokens = std::move(tokens),
                .positions_max = positions_max,
                .logits_from = known - 1,
                .chunk = spec.prefill_chunk});
  return {};
}

proto::Finish Leader::finish_at(const Request& request, int32_t token) {
  const auto& stops = request.generate.stop_tokens;
  // Also at the limit: the model did end here.
  if (std::binary_search(stops.begin(), stops.end(), token)) return proto::Finish::kStop;
  return request.generated_tokens >= request.generated_max ? proto::Finish::kLength
                                                           : proto::Finish::kNone;
}

base::Status Leader::admit_score(uint64_t id, Request& request) {
  proto::ScoreRequest& spec = request.score;
  const auto tokens = static_cast<int64_t>(spec.tokens.size());
  if (spec.tokens.empty())
    return base::Error{base::Code::kInvalidArgument, "there are no tokens to score"};
  if (tokens > shape_.context) return too_long(tokens, shape_.context);
  RETURN_IF_ERROR(check_ids("tokens", spec.tokens));
  RETURN_IF_ERROR(batcher_.check_fits(tokens));
  request.prompt_tokens = tokens;
  const int64_t scored_from = std::clamp<int64_t>(spec.first_scored, 1, tokens) - 1;
  batcher_.add({.id = id,
                .tokens = std::move(spec.tokens),
                .positions_max = tokens,
                .logits_from = spec.want_top ? 0 : scored_from,
                .chunk = spec.chunk,
                .computes_all = true});
  return {};
}

void Leader::on_cancel(uint64_t request_id, base::TimeNs now) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second.finished) return;
  finish(request_id, proto::Finish::kCancelled,
         {base::Code::kCancelled, "the request was cancelled"}, now);
}

void Leader::on_ack(const proto::Ack& ack, base::TimeNs now) {
  const auto found = requests_.find(ack.request_id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  const uint64_t oldest = request.next_index - request.unacknowledged.size();
  // Older than known or beyond what was sent: a stray, whoever sent it.
  if (ack.next_index <= oldest || ack.next_index > request.next_index) return;
  const auto count = static_cast<std::ptrdiff_t>(ack.next_index - oldest);
  request.unacknowledged.erase(request.unacknowledged.begin(),
                               request.unacknowledged.begin() + count);
  request.waiting_since = now;
  if (request.unacknowledged.size() < options_.unacknowledged_max)
    batcher_.set_paused(ack.request_id, false);
  if (request.finished && request.unacknowledged.empty()) requests_.erase(found);
}

void Leader::emit(Request& request, proto::Body chunk, base::TimeNs now) {
  if (request.unacknowledged.empty()) request.waiting_since = now;
  request.next_index++;
  outbox_.push_back({chunk, request.trace_id});
  request.unacknowledged.push_back(std::move(chunk));
}

void Leader::finish(uint64_t id, proto::Finish how, base::Error error, base::TimeNs now) {
  Request& request = requests_.at(id);
  CHECK(!request.finished, "request ", id, " finished twice");
  batcher_.remove(id);
  request.finished = true;
  if (request.scores) {
    emit(request,
         proto::ScoreChunk{.request_id = id,
                           .index = request.next_index,
                           .finish = how,
                           .error = std::move(error)},
         now);
  } else {
    emit(request,
         proto::TokenChunk{.request_id = id,
                           .index = request.next_index,
                           .finish = how,
                           .usage = {request.prompt_tokens, request.generated_tokens},
                           .error = std::move(error)},
         now);
  }
}

base::Status Leader::tick(base::TimeNs now) {
  resend(now);
  const engine::Step* step = batcher_.plan();
  if (step == nullptr) return {};
  return run_step(*step, now);
}

void Leader::resend(base::TimeNs now) {
  for (auto& [id, request] : requests_) {
    if (request.unacknowledged.empty() || now - request.waiting_since < options_.resend_after)
      continue;
    request.waiting_since = now;
    for (const proto::Body& chunk : request.unacknowledged)
      outbox_.push_back({chunk, request.trace_id});
  }
}

void Leader::forget_all() {
  for (const auto& [id, request] : requests_) batcher_.remove(id);
  requests_.clear();
  outbox_.clear();
}

bool Leader::has_work() const {
  return batcher_.has_work();
}

std::vector<Traced> Leader::take_outbox() {
  return std::exchange(outbox_, {});
}

proto::StatsReply Leader::stats() const {
  proto::StatsReply stats = stats_;
  stats.kv_blocks_used = batcher_.blocks().used();
  stats.kv_blocks_peak = batcher_.blocks().peak();
  stats.kv_blocks_reused = batcher_.blocks().reused();
  return stats;
}

Kept Leader::kept() const {
  Kept kept{.requests = requests_.size()};
  for (const auto& [id, request] : requests_)
    kept.unacknowledged_most = std::max(kept.unacknowledged_most, request.unacknowledged.size());
  return kept;
}

}  // namespace worker
