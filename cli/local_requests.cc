// The half of LocalCluster that asks something of a loaded model.
#include <poll.h>

#include <utility>

#include "base/cat.h"
#include "cli/local_cluster.h"

namespace cli {

namespace {

bool is_readable(int descriptor) {
  pollfd watched{descriptor, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

}  // namespace

base::Status LocalCluster::await_event(const std::function<bool(broker::Event&)>& take) {
  heard_at_ = clock_.now();  // until now nothing was to be said
  while (true) {
    for (broker::Event& event : std::exchange(events_, {}))
      if (take(event)) return {};
    RETURN_IF_ERROR(pump({}));
    RETURN_IF_ERROR(watch_leader());
  }
}

// During a long prompt a healthy leader has nothing to say, but it answers between its steps.
base::Status LocalCluster::watch_leader() {
  const base::TimeNs now = clock_.now();
  const base::TimeNs silence = now - heard_at_;
  if (silence >= silence_max_)
    return base::Error{
        base::Code::kTimeout,
        base::cat(
            "worker 0 (process ", worker_pid(0), ") has said nothing for ", silence / 1'000'000'000,
            " s while a request runs; look whether it is stopped, or use a smaller --chunk if "
            "one step takes that long")};
  const base::TimeNs probe_after = silence_max_ / 8;
  if (silence >= probe_after && now - probed_at_ >= probe_after) {
    probed_at_ = now;
    broker_->request_stats();
  }
  return {};
}

base::Result<Generated> LocalCluster::generate(
    proto::GenerateRequest request,
    const std::function<Continue(std::span<const int32_t>)>& on_tokens) {
  ASSIGN_OR_RETURN(const uint64_t id, broker_->generate(std::move(request), clock_.now()));
  Generated generated;
  base::Error error;
  bool wanted = true;
  RETURN_IF_ERROR(await_event([&](broker::Event& event) {
    auto* token = std::get_if<broker::TokenEvent>(&event);
    if (token == nullptr || token->chunk.request_id != id) return false;
    const proto::TokenChunk& chunk = token->chunk;
    generated.tokens.insert(generated.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    generated.finish = chunk.finish;
    generated.usage = chunk.usage;
    error = chunk.error;
    if (wanted && !chunk.tokens.empty() && on_tokens(chunk.tokens) == Continue::kNo) {
      wanted = false;
      broker_->cancel(id, clock_.now());
    }
    return chunk.finish != proto::Finish::kNone;
  }));
  usage_.prompt_tokens += generated.usage.prompt_tokens;
  usage_.generated_tokens += generated.usage.generated_tokens;
  if (generated.finish == proto::Finish::kError) return error;
  return generated;
}

base::Result<Scored> LocalCluster::score(proto::ScoreRequest request,
                                         const std::function<void(int64_t)>& on_positions) {
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  ASSIGN_OR_RETURN(const uint64_t id, broker_->score(std::move(request), clock_.now()));
  Scored scored;
  base::Error error;
  proto::Finish finish = proto::Finish::kNone;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  RETURN_IF_ERROR(await_event([&](broker::Event& event) {
    auto* score = std::get_if<broker::ScoreEvent>(&event);
    if (score == nullptr || score->chunk.request_id != id) return false;
    proto::ScoreChunk& chunk = score->chunk;
    append(scored.log_probabilities, chunk.log_probabilities);
    append(scored.top_ids, chunk.top_ids);
    append(scored.top_logits, chunk.top_logits);
    if (chunk.top_count > 0) scored.top_count = chunk.top_count;
    if (!chunk.last_logits.empty()) scored.last_logits = std::move(chunk.last_logits);
    finish = chunk.finish;
    error = chunk.error;
    if (on_positions) on_positions(chunk.first_position + chunk.position_count);
    return finish != proto::Finish::kNone;
  }));
  if (finish == proto::Finish::kError) return error;
  usage_.prompt_tokens += tokens;
  return scored;
}

base::Result<proto::StatsReply> LocalCluster::stats() {
  broker_->request_stats();
  proto::StatsReply stats;
  RETURN_IF_ERROR(await_event([&](broker::Event& event) {
    const auto* reply = std::get_if<broker::StatsEvent>(&event);
    if (reply != nullptr) stats = reply->stats;
    return reply != nullptr;
  }));
  return stats;
}

base::Status LocalCluster::wait_for(int descriptor) {
  const int watched[] = {descriptor};
  while (true) {
    RETURN_IF_ERROR(pump(watched));
    if (is_readable(descriptor)) return {};
  }
}

}  // namespace cli
