// The half of Broker that follows requests from start to last chunk.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "broker/broker.h"

namespace broker {

namespace {

constexpr int kDoublingsMax = 5;  // of the time between two repeats

base::Error invalid(std::string sentence) {
  return {base::Code::kInvalidArgument, std::move(sentence)};
}

base::Status check_ids(std::string_view what, const std::vector<int32_t>& ids, int64_t vocabulary) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocabulary)
      return invalid(
          base::cat("the ", what, " contain id ", id, "; this model has ids 0 … ", vocabulary - 1));
  return {};
}

base::Status check_count(std::string_view what, size_t count, size_t max) {
  if (count <= max) return {};
  return invalid(base::cat("the request has ", count, " ", what, ", at most ", max,
                           " are allowed; give fewer"));
}

base::Status check_not_negative(std::string_view field, int64_t value) {
  if (value >= 0) return {};
  return invalid(base::cat(field, " is ", value, ", it must be at least 0"));
}

}  // namespace

base::Result<uint64_t> Broker::generate(proto::GenerateRequest request, base::TimeNs now) {
  RETURN_IF_ERROR(check_open());
  RETURN_IF_ERROR(check(request));
  const uint64_t id = last_request_id_ + 1;
  request.request_id = id;
  std::vector<int32_t> tokens = request.prompt;
  start(std::move(request), id, std::move(tokens), now);
  return id;
}

base::Result<uint64_t> Broker::score(proto::ScoreRequest request, base::TimeNs now) {
  RETURN_IF_ERROR(check_open());
  RETURN_IF_ERROR(check(request));
  const uint64_t id = last_request_id_ + 1;
  request.request_id = id;
  std::vector<int32_t> tokens = request.tokens;
  start(std::move(request), id, std::move(tokens), now);
  return id;
}

base::Status Broker::check_open() const {
  if (closing_)
    return base::Error{base::Code::kUnavailable, base::cat("shutting down: ", *closing_)};
  if (!ready())
    return base::Error{base::Code::kUnavailable, "the model is not loaded; try again later"};
  if (live_requests() >= options_.requests_max)
    return base::Error{
        base::Code::kUnavailable,
        base::cat(options_.requests_max, " requests are under way; try again later")};
  return {};
}

base::Status Broker::check_tokens(std::string_view what, const std::vector<int32_t>& tokens) const {
  const proto::Ready& leader = *members_.at(0).info.ready;
  if (tokens.empty()) return invalid(base::cat("the ", what, " has no tokens"));
  if (tokens.size() > static_cast<size_t>(leader.context))
    return invalid(base::cat("the ", what, " has ", tokens.size(),
                             " tokens, which exceeds the context of ", leader.context,
                             "; shorten it or start with a larger --ctx"));
  return check_ids(base::cat("tokens of the ", what), tokens, leader.vocabulary);
}

// All that a worker would find unreadable (proto/decode.cc): it could not even say so well.
base::Status Broker::check(const proto::GenerateRequest& request) const {
  const int64_t vocabulary = members_.at(0).info.ready->vocabulary;
  const proto::Sampling& sampling = request.sampling;
  RETURN_IF_ERROR(check_tokens("prompt", request.prompt));
  RETURN_IF_ERROR(check_count("stop tokens", request.stop_tokens.size(), proto::kStopTokensMax));
  RETURN_IF_ERROR(check_ids("stop tokens", request.stop_tokens, vocabulary));
  RETURN_IF_ERROR(check_count("logit biases", sampling.logit_bias.size(), proto::kLogitBiasMax));
  for (const auto& [id, bias] : sampling.logit_bias) {
    RETURN_IF_ERROR(check_ids("logit biases", {id}, vocabulary));
    if (!std::isfinite(bias)) return invalid(base::cat("the logit bias of ", id, " is ", bias));
  }
  const std::pair<const char*, float> numbers[] = {
      {"temperature", sampling.temperature},
      {"top_p", sampling.top_p},
      {"min_p", sampling.min_p},
      {"repeat_penalty", sampling.repeat_penalty},
      {"presence_penalty", sampling.presence_penalty},
      {"frequency_penalty", sampling.frequency_penalty}};
  for (const auto& [name, number] : numbers)
    if (!std::isfinite(number)) return invalid(base::cat(name, " is ", number, ", not finite"));
  RETURN_IF_ERROR(check_not_negative("top_k", sampling.top_k));
  RETURN_IF_ERROR(check_not_negative("max_tokens", request.max_tokens));
  return check_not_negative("prefill_chunk", request.prefill_chunk);
}

base::Status Broker::check(const proto::ScoreRequest& request) const {
  RETURN_IF_ERROR(check_tokens("text", request.tokens));
  if (request.first_scored < 1)
    return invalid(base::cat("first_scored is ", request.first_scored, ", it must be at least 1"));
  return check_not_negative("chunk", request.chunk);
}

void Broker::start(proto::Body request, uint64_t id, std::vector<int32_t> tokens,
                   base::TimeNs now) {
  last_request_id_ = id;
  Live& live = live_[id];
  live.request = std::move(request);
  live.trace_id = base::cat(options_.node_id, "-", id);
  live.prompt_tokens = tokens.size();
  live.tokens = std::move(tokens);
  send_waiting(now);
}

void Broker::request_stats() {
  if (!ready()) return;
  for (const auto& [rank, member] : members_) send(member.peer, proto::StatsRequest{});
}

void Broker::on_tick(base::TimeNs now) {
  for (auto& [id, live] : live_) {
    if (!live.sent) continue;
    if (live.acknowledged < live.next_index &&
        now - live.unacknowledged_since >= options_.acknowledge_after)
      acknowledge(id, live);
    if (live.answered && !live.cancelling) continue;
    // A leader in the middle of a long step answers after it, and long prompts must not pile up
    // there meanwhile; a cancel is short and urgent.
    const int doublings = live.cancelling ? 0 : std::min(live.repeats, kDoublingsMax);
    if (now - live.asked_at < options_.repeat_after << doublings) continue;
    live.repeats++;
    if (!live.answered) {
      live.asked_at = now;
      send_leader(live.request, live.trace_id);
    }
    if (live.cancelling) {
      live.asked_at = now;
      send_leader(proto::Cancel{id}, live.trace_id);
    }
  }
}

void Broker::acknowledge(uint64_t request_id, Live& live) {
  live.acknowledged = live.next_index;
  send_leader(proto::Ack{request_id, live.next_index}, live.trace_id);
}

Broker::Live* Broker::expect(uint64_t request_id, uint64_t index, proto::Finish finish) {
  const auto found = live_.find(request_id);
  if (found == live_.end()) {
    // Nobody waits for it: the last acknowledgement was lost, or the request is of the past.
    send_leader(proto::Ack{request_id, index + 1});
    if (finish == proto::Finish::kNone) send_leader(proto::Cancel{request_id});
    return nullptr;
  }
  Live& live = found->second;
  live.answered = true;
  if (index != live.next_index) {
    // Repeated, or ahead of one that was lost: saying what we have makes the leader go on from
    // there.
    acknowledge(request_id, live);
    return nullptr;
  }
  return &live;
}

void Broker::take_chunk(uint64_t request_id, proto::Finish finish, base::TimeNs now) {
  Live& live = live_.at(request_id);
  if (live.acknowledged == live.next_index) live.unacknowledged_since = now;
  live.next_index++;
  const bool last = finish != proto::Finish::kNone;
  if (last || live.next_index - live.acknowledged >= options_.acknowledge_every)
    acknowledge(request_id, live);
  const bool ran_alone = live.blame.must_run_alone();
  live.blame.on_progress(live.generated());
  const bool is_cleared = ran_alone && !live.blame.must_run_alone();
  if (last) live_.erase(request_id);
  if (last || is_cleared) send_waiting(now);
}

void Broker::on_token_chunk(proto::TokenChunk chunk, base::TimeNs now) {
  Live* live = expect(chunk.request_id, chunk.index, chunk.finish);
  if (live == nullptr) return;
  const int64_t vocabulary = members_.at(0).info.ready->vocabulary;
  const bool known_ids = std::all_of(chunk.tokens.begin(), chunk.tokens.end(),
                                     [&](int32_t id) { return id < vocabulary; });
  if (!known_ids || !std::holds_alternative<proto::GenerateRequest>(live->request)) {
    const std::string peer = members_.at(0).peer;
    return on_peer_lost(peer, {base::Code::kPeerLost,
                               base::cat("the leader's answer to request ", chunk.request_id,
                                         " makes no sense; its process is not trusted any more")});
  }
  live->tokens.insert(live->tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  take_chunk(chunk.request_id, chunk.finish, now);
  events_.push_back(TokenEvent{std::move(chunk)});
}

void Broker::on_score_chunk(proto::ScoreChunk chunk, base::TimeNs now) {
  Live* live = expect(chunk.request_id, chunk.index, chunk.finish);
  if (live == nullptr) return;
  const auto vocabulary = static_cast<size_t>(members_.at(0).info.ready->vocabulary);
  const bool sane = chunk.last_logits.empty() || chunk.last_logits.size() == vocabulary;
  if (!sane || !std::holds_alternative<proto::ScoreRequest>(live->request)) {
    const std::string peer = members_.at(0).peer;
    return on_peer_lost(peer, {base::Code::kPeerLost,
                               base::cat("the leader's answer to request ", chunk.request_id,
                                         " makes no sense; its process is not trusted any more")});
  }
  take_chunk(chunk.request_id, chunk.finish, now);
  events_.push_back(ScoreEvent{std::move(chunk)});
}

std::vector<int32_t> Broker::tokens(uint64_t request_id) const {
  const auto found = live_.find(request_id);
  return found == live_.end() ? std::vector<int32_t>() : found->second.tokens;
}

}  // namespace broker
