// A broker, its workers with scripted runners and a network, all in one thread under one clock.
//
// Workers are processes here: they can be killed and started again, and everything that is random
// comes from the seed of the test. Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/cat.h"
#include "broker/broker.h"
#include "proto/memory_channel.h"
#include "tests/worker/scripted_runner.h"
#include "worker/worker.h"

namespace broker {

/// What a client of the broker saw of one request.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities, last_logits;
  proto::Finish finish = proto::Finish::kNone;
  proto::Usage usage;
  base::Error error;
};

class ClusterInAThread {
 public:
  struct Options {
    int ranks = 2;
    worker::ScriptedOptions runner = {};
    proto::MemoryNetwork::Options network = {};
    base::TimeNs step_ns = 10'000'000;  // how far the clock moves in a turn
    BrokerOptions broker = {};          // ranks and model are filled in
  };

  explicit ClusterInAThread(Options options)
      : options_(options), network_(clock_, options.network), channel_(network_.broker()) {
    restart_broker(options.broker);
    for (int rank = 0; rank < options.ranks; rank++) start(rank);
  }

  /// Starts rank `rank` as a new incarnation; the old one must have been killed.
  void start(int rank) {
    auto& process = processes_[rank];
    const uint64_t incarnation = ++incarnations_;
    const std::string node = base::cat("node-", rank);
    process.name = proto::peer_name(node, incarnation);
    process.channel = network_.connect(process.name);
    process.runner = std::make_unique<worker::ScriptedRunner>(options_.runner);
    process.worker =
        std::make_unique<worker::Worker>(worker::WorkerOptions{.node_id = node,
                                                               .incarnation = incarnation,
                                                               .rank = rank,
                                                               .rank_count = options_.ranks,
                                                               .model_fingerprint = fingerprint,
                                                               .group_id = "group"});
  }
  void kill(int rank) { processes_.erase(rank); }
  /// The present one is gone without a word.
  void restart_broker(BrokerOptions options) {
    options.rank_count = options_.ranks;
    options.model_fingerprint = "model";
    broker_ = std::make_unique<Broker>(options);
  }
  std::string name(int rank) const { return processes_.at(rank).name; }

  void turn() {
    clock_.advance(options_.step_ns);
    while (auto received = channel_->receive())
      broker_->on_message(received->peer, received->message, clock_.now());
    broker_->on_tick(clock_.now());
    for (Outgoing& out : broker_->take_outbox()) {
      const auto sent = channel_->send(out.peer, std::move(out.message));
      if (!sent.ok()) broker_->on_peer_lost(out.peer, sent.error());
    }
    for (auto& [rank, process] : processes_) turn(rank, process);
    for (Event& event : broker_->take_events()) {
      if (on_event) on_event(event);
      note(std::move(event));
    }
  }
  /// Turns until `done`, or fails after `turns`.
  template <class Done>
  void run_until(Done done, int turns = 20000) {
    while (!done() && turns-- > 0) turn();
    EXPECT_GE(turns, 0) << "never came to that";
  }
  void run_until_ready() {
    run_until([&] { return broker_->ready(); });
  }
  void run_until_answered() {
    run_until([&] { return broker_->live_requests() == 0; });
    turn();
  }

  Broker& broker() { return *broker_; }
  worker::Worker& worker(int rank) { return *processes_.at(rank).worker; }
  base::TimeNs now() const { return clock_.now(); }
  /// How many workers have loaded.
  int loads() const { return loads_; }
  std::map<uint64_t, Answer> answers;
  std::function<void(Event&)> on_event;  // sees and may change all of them first; may be empty
  std::vector<base::Error> losses;
  int ready_count = 0;
  std::vector<proto::StatsReply> stats;
  std::string fingerprint = "model";

 private:
  struct Process {
    std::string name;
    std::unique_ptr<proto::Channel> channel;
    std::unique_ptr<worker::ScriptedRunner> runner;
    std::unique_ptr<worker::Worker> worker;
  };

  void turn(int rank, Process& process) {
    worker::Worker& worker = *process.worker;
    while (auto received = process.channel->receive())
      worker.on_message(received->message, clock_.now());
    if (worker.state() == worker::Worker::State::kLoading) {
      loads_++;
      worker.load_progress(10, 10);
      if (rank == 0) {
        worker.lead({}, *process.runner, {.token_count = 90}, nullptr);
      } else {
        worker.loaded({.vocabulary = 97, .context = 4096, .columns_max = 32});
      }
    }
    worker.on_tick(clock_.now());
    // A message that cannot be sent now is sent again by the protocol.
    for (proto::Message& message : worker.take_outbox())
      [[maybe_unused]] const auto sent = process.channel->send(proto::kBroker, std::move(message));
  }

  template <class Chunk>
  Answer& note_end(const Chunk& chunk) {
    Answer& answer = answers[chunk.request_id];
    EXPECT_EQ(answer.finish, proto::Finish::kNone) << "an event after the last one";
    answer.finish = chunk.finish;
    answer.error = chunk.error;
    return answer;
  }
  void note(Event event) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      Answer& answer = note_end(token->chunk);
      answer.tokens.insert(answer.tokens.end(), token->chunk.tokens.begin(),
                           token->chunk.tokens.end());
      answer.usage = token->chunk.usage;
    } else if (const auto* score = std::get_if<ScoreEvent>(&event)) {
      Answer& answer = note_end(score->chunk);
      answer.log_probabilities.insert(answer.log_probabilities.end(),
                                      score->chunk.log_probabilities.begin(),
                                      score->chunk.log_probabilities.end());
      if (!score->chunk.last_logits.empty()) answer.last_logits = score->chunk.last_logits;
    } else if (const auto* lost = std::get_if<GroupLostEvent>(&event)) {
      losses.push_back(lost->error);
    } else if (std::holds_alternative<GroupReadyEvent>(event)) {
      ready_count++;
    } else if (const auto* reply = std::get_if<StatsEvent>(&event)) {
      stats.push_back(reply->stats);
    }
  }

  const Options options_;
  base::ManualClock clock_;
  proto::MemoryNetwork network_;
  std::unique_ptr<proto::Channel> channel_;
  std::unique_ptr<Broker> broker_;
  std::map<int, Process> processes_;
  uint64_t incarnations_ = 0;
  int loads_ = 0;
};

}  // namespace broker
