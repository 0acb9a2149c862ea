#include "worker/worker.h"

#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/limits.h"

namespace worker {

Worker::Worker(WorkerOptions options) : options_(std::move(options)) {
  CHECK(options_.rank >= 0 && options_.rank < options_.rank_count, "rank ", options_.rank);
}

void Worker::on_message(const proto::Message& message, base::TimeNs now) {
  if (state_ == State::kStopped || state_ == State::kFailed) return;
  auto parsed = proto::parse(message);
  if (!parsed.ok()) {
    // A broker of another version cannot be served; what cannot be read and answered is dropped.
    if (parsed.error().code == base::Code::kUnsupported) return fail(parsed.error());
    auto refusal = proto::refuse_request(message, parsed.error());
    if (leader_ && refusal && refusal->header.plan_epoch == plan_epoch_)
      send(std::move(refusal->body), std::move(refusal->header.trace_id));
    return;
  }
  const uint64_t epoch = parsed->header.plan_epoch;
  std::string trace_id = std::move(parsed->header.trace_id);
  proto::Body& body = parsed->body;
  if (const auto* reply = std::get_if<proto::HelloReply>(&body)) return on_hello_reply(*reply);
  if (const auto* shutdown = std::get_if<proto::Shutdown>(&body)) {
    reason_ = {base::Code::kCancelled, shutdown->reason};
    state_ = State::kStopped;
    return;
  }
  if (epoch != plan_epoch_ || epoch == 0) return;  // of a plan that is no longer, or not yet, ours
  if (std::holds_alternative<proto::Rejoin>(body)) return on_rejoin();
  if (std::holds_alternative<proto::ReadyReply>(body)) ready_answered_ = true;
  if (std::holds_alternative<proto::PlacementRequest>(body) && placement_source_ != nullptr)
    send(placement_source_->placement(), trace_id);
  if (!leader_ && std::holds_alternative<proto::StatsRequest>(body)) on_stats_request(trace_id);
  if (!leader_) return;
  if (auto* generate = std::get_if<proto::GenerateRequest>(&body)) {
    leader_->on_generate(std::move(*generate), std::move(trace_id), now);
  } else if (auto* score = std::get_if<proto::ScoreRequest>(&body)) {
    leader_->on_score(std::move(*score), std::move(trace_id), now);
  } else if (const auto* cancel = std::get_if<proto::Cancel>(&body)) {
    leader_->on_cancel(cancel->request_id, now);
  } else if (const auto* ack = std::get_if<proto::Ack>(&body)) {
    leader_->on_ack(*ack, now);
  } else if (std::holds_alternative<proto::StatsRequest>(body)) {
    on_stats_request(trace_id);
  }
  drain_leader();
}

void Worker::on_hello_reply(const proto::HelloReply& reply) {
  if (state_ != State::kHello) return;  // an answer to a repeated hello
  if (!reply.accepted) {
    state_ = State::kFailed;
    reason_ = {base::Code::kUnsupported,
               base::cat("the broker refused this worker: ", reply.reason)};
    return;
  }
  plan_epoch_ = reply.plan_epoch;
  broker_lost_ = false;
  state_ = ready_ ? State::kReady : State::kLoading;
  if (ready_) said_at_.reset();  // its next word is Ready
}

// It names the epoch that this worker is in, as all messages do, so one that comes late tells
// nothing to whoever has left that epoch.
void Worker::on_rejoin() {
  if (state_ != State::kReady) return;  // who still loads says so, and is told again
  if (leader_) leader_->forget_all();
  plan_epoch_ = 0;
  ready_answered_ = false;
  broker_lost_ = false;
  state_ = State::kHello;
  said_at_.reset();
}

void Worker::on_broker_lost() {
  broker_lost_ = true;
  if (leader_) leader_->forget_all();
}

void Worker::on_tick(base::TimeNs now) {
  if (state_ == State::kStopped || state_ == State::kFailed) return;
  const bool is_calm = ready_answered_ && !broker_lost_;
  if (!said_at_ || now - *said_at_ >= (is_calm ? options_.say_after : options_.repeat_after)) {
    said_at_ = now;
    if (state_ == State::kHello) {
      send(proto::Hello{.rank = options_.rank,
                        .rank_count = options_.rank_count,
                        .numerics_version = base::kNumericsVersion,
                        .model_fingerprint = options_.model_fingerprint,
                        .program_version = options_.program_version,
                        .group_id = ready_ ? options_.group_id : std::string()});
    } else if (ready_) {
      send(*ready_);
    }
  }
  if (!leader_) return;
  const base::Status stepped = leader_->tick(now);
  drain_leader();
  if (!stepped.ok()) fail(stepped.error());
}

void Worker::load_progress(uint64_t bytes_done, uint64_t bytes_total) {
  if (state_ == State::kLoading) send(proto::LoadProgress{bytes_done, bytes_total});
}

void Worker::loaded(proto::Ready ready, const StatsSource* source) {
  CHECK(state_ == State::kLoading, "loaded twice or before hello");
  state_ = State::kReady;
  ready_ = ready;
  source_ = source;
  said_at_.reset();
}

void Worker::lead(proto::Ready ready, engine::StepRunner& runner, LeaderOptions options,
                  const StatsSource* source) {
  CHECK(options_.rank == 0, "rank ", options_.rank, " cannot lead");
  const engine::RunnerShape shape = runner.shape();
  ready.vocabulary = shape.vocabulary;
  ready.context = shape.context;
  ready.kv_block_count = shape.kv_block_count;
  ready.columns_max = shape.columns_max;
  leader_.emplace(runner, options);
  loaded(ready, source);
}

void Worker::fail(base::Error error) {
  if (state_ == State::kStopped || state_ == State::kFailed) return;
  send(proto::WorkerFailed{error});
  reason_ = std::move(error);
  state_ = State::kFailed;
}

void Worker::on_stats_request(const std::string& trace_id) {
  if (!ready_) return;
  proto::StatsReply stats = leader_ ? leader_->stats() : proto::StatsReply{};
  if (source_ != nullptr) source_->add_to(stats);
  send(stats, trace_id);
}

void Worker::drain_leader() {
  for (Traced& traced : leader_->take_outbox())
    send(std::move(traced.body), std::move(traced.trace_id));
}

void Worker::send(proto::Body body, std::string trace_id) {
  outbox_.push_back(proto::encode({.header = {.node_id = options_.node_id,
                                              .incarnation = options_.incarnation,
                                              .plan_epoch = plan_epoch_,
                                              .trace_id = std::move(trace_id),
                                              .sequence = ++sequence_},
                                   .body = std::move(body)}));
}

std::vector<proto::Message> Worker::take_outbox() {
  return std::exchange(outbox_, {});
}

}  // namespace worker
