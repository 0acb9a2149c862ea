#include "cli/local_cluster.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace cli {

namespace {

bool is_readable(int descriptor) {
  pollfd watched{descriptor, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

}  // namespace

base::Result<std::unique_ptr<LocalCluster>> LocalCluster::start(
    ClusterOptions options, const worker::BackendFactory& factory, SignalWatch& signals,
    base::Log& log, const std::function<void(uint64_t, uint64_t)>& on_progress) {
  const int decode_threads = options.rank.decode_threads;
  ASSIGN_OR_RETURN(auto loop, ClusterLoop::start(std::move(options), factory, signals, log));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(loop), signals, decode_threads));
  RETURN_IF_ERROR(cluster->await_ready(on_progress));
  return cluster;
}

int LocalCluster::threads() const {
  size_t sum = 0;
  for (const shm::RankPlacement& rank : placement().ranks) sum += rank.cpus.size();
  return static_cast<int>(sum);
}

int LocalCluster::decode_threads() const {
  if (decode_threads_ == 0) return threads();
  size_t sum = 0;
  for (const shm::RankPlacement& rank : placement().ranks)
    sum += std::min(rank.cpus.size(), static_cast<size_t>(decode_threads_));
  return static_cast<int>(sum);
}

base::Status LocalCluster::await_ready(const std::function<void(uint64_t, uint64_t)>& on_progress) {
  while (!loop_->broker().ready()) {
    RETURN_IF_ERROR(pump({}));
    const auto progress = loop_->progress();
    if (progress && on_progress) on_progress(progress->first, progress->second);
  }
  loop_->take_events();
  return {};
}

base::Status LocalCluster::pump(std::span<const int> descriptors) {
  loop_->wait(descriptors);
  if (signals_.asked_to_end()) return signals_.error();
  return loop_->step();
}

base::Status LocalCluster::await_event(const std::function<bool(broker::Event&)>& take) {
  loop_->begin_watch();
  while (true) {
    for (broker::Event& event : loop_->take_events())
      if (take(event)) return {};
    RETURN_IF_ERROR(pump({}));
    RETURN_IF_ERROR(loop_->watch(Work::kSome));
  }
}

base::Result<Generated> LocalCluster::generate(
    proto::GenerateRequest request,
    const std::function<Continue(std::span<const int32_t>)>& on_tokens) {
  ASSIGN_OR_RETURN(const uint64_t id, loop_->broker().generate(std::move(request), loop_->now()));
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
      loop_->broker().cancel(id, loop_->now());
    }
    return chunk.finish != proto::Finish::kNone;
  }));
  usage_.prompt_tokens += generated.usage.prompt_tokens;
  usage_.generated_tokens += generated.usage.generated_tokens;
  if (generated.finish == proto::Finish::kError) return error;
  return generated;
}

base::Status LocalCluster::generate_together(
    std::vector<proto::GenerateRequest> requests,
    const std::function<Continue(size_t, std::span<const int32_t>)>& on_tokens) {
  std::vector<uint64_t> ids;
  for (proto::GenerateRequest& request : requests) {
    ASSIGN_OR_RETURN(const uint64_t id, loop_->broker().generate(std::move(request), loop_->now()));
    ids.push_back(id);
  }
  size_t live = ids.size();
  bool wanted = true;
  base::Status failed;
  RETURN_IF_ERROR(await_event([&](broker::Event& event) {
    auto* token = std::get_if<broker::TokenEvent>(&event);
    if (token == nullptr) return false;
    const proto::TokenChunk& chunk = token->chunk;
    const auto found = std::find(ids.begin(), ids.end(), chunk.request_id);
    if (found == ids.end()) return false;
    const auto index = static_cast<size_t>(found - ids.begin());
    if (chunk.finish == proto::Finish::kError && failed.ok()) failed = chunk.error;
    const bool go_on = chunk.tokens.empty() || on_tokens(index, chunk.tokens) == Continue::kYes;
    if (wanted && (!go_on || !failed.ok())) {
      wanted = false;
      for (const uint64_t id : ids) loop_->broker().cancel(id, loop_->now());
    }
    if (chunk.finish == proto::Finish::kNone) return false;
    usage_.prompt_tokens += chunk.usage.prompt_tokens;
    usage_.generated_tokens += chunk.usage.generated_tokens;
    return --live == 0;
  }));
  return failed;
}

base::Result<Scored> LocalCluster::score(proto::ScoreRequest request,
                                         const std::function<void(int64_t)>& on_positions) {
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  ASSIGN_OR_RETURN(const uint64_t id, loop_->broker().score(std::move(request), loop_->now()));
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

base::Result<std::vector<proto::StatsReply>> LocalCluster::stats() {
  loop_->broker().request_stats();
  std::vector<proto::StatsReply> stats(static_cast<size_t>(ranks()));
  std::vector<bool> told(stats.size());
  // A look for signs of life may have asked too: the last answer of each rank counts.
  RETURN_IF_ERROR(await_event([&](broker::Event& event) {
    size_t rank = 0;
    if (const auto* leader = std::get_if<broker::StatsEvent>(&event)) {
      stats[0] = leader->stats;
    } else if (const auto* other = std::get_if<broker::RankStatsEvent>(&event)) {
      rank = static_cast<size_t>(other->rank);
      stats[rank] = other->stats;
    } else {
      return false;
    }
    told[rank] = true;
    return std::find(told.begin(), told.end(), false) == told.end();
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
