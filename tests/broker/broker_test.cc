#include "broker/broker.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/cat.h"
#include "base/limits.h"
#include "tests/broker/alone.h"
#include "tests/broker/cluster_in_a_thread.h"

namespace broker {
namespace {

proto::GenerateRequest request(uint32_t seed, size_t length, int64_t max_tokens) {
  std::mt19937 random(seed);
  proto::GenerateRequest request{.prompt = std::vector<int32_t>(length), .max_tokens = max_tokens};
  for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % 97);
  request.sampling.seed = seed;
  return request;
}

std::vector<int32_t> solo(const proto::GenerateRequest& wanted) {
  ClusterInAThread cluster({.ranks = 1});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
  cluster.run_until_answered();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kLength);
  return cluster.answers[id].tokens;
}

TEST(Broker, AGroupFormsAndAnswers) {
  ClusterInAThread cluster({.ranks = 4});
  EXPECT_EQ(cluster.broker().generate(request(1, 5, 5), 0).error().code, base::Code::kUnavailable);
  cluster.run_until_ready();
  cluster.turn();
  EXPECT_EQ(cluster.ready_count, 1);
  for (int rank = 0; rank < 4; rank++) {
    ASSERT_NE(cluster.broker().rank(rank), nullptr);
    EXPECT_EQ(cluster.broker().rank(rank)->node_id, base::cat("node-", rank));
    EXPECT_EQ(cluster.broker().rank(rank)->bytes_done, 10u);
  }
  EXPECT_EQ(cluster.broker().rank(4), nullptr);
  const uint64_t id = *cluster.broker().generate(request(1, 50, 40), cluster.now());
  cluster.run_until_answered();
  const Answer& answer = cluster.answers[id];
  EXPECT_EQ(answer.tokens.size(), 40u);
  EXPECT_EQ(answer.tokens, solo(request(1, 50, 40)));
  EXPECT_EQ(answer.usage.prompt_tokens, 50);
  EXPECT_EQ(answer.usage.generated_tokens, 40);
}

TEST(Broker, KnowsPromptAndTokensSoFar) {
  ClusterInAThread cluster({.ranks = 1});
  cluster.run_until_ready();
  const auto wanted = request(1, 5, 40);
  const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
  cluster.run_until([&] { return cluster.answers[id].tokens.size() >= 7; });
  std::vector<int32_t> expected = wanted.prompt;
  const auto& tokens = cluster.answers[id].tokens;
  expected.insert(expected.end(), tokens.begin(), tokens.end());
  EXPECT_EQ(cluster.broker().tokens(id), expected);
  cluster.run_until_answered();
  EXPECT_TRUE(cluster.broker().tokens(id).empty());
}

TEST(Broker, LossDelayAndReorderingChangeNothing) {
  for (uint32_t seed = 1; seed <= 12; seed++) {
    std::mt19937 random(seed);
    ClusterInAThread cluster(
        {.ranks = 3, .network = {.fate = [&](std::string_view, std::string_view) {
                       const base::TimeNs delay = (random() % 5) * 15'000'000;
                       return random() % 5 == 0 ? proto::Fate{.delays = {}}
                                                : proto::Fate{.delays = {delay}};
                     }}});
    cluster.run_until_ready();
    std::map<uint64_t, proto::GenerateRequest> requests;
    for (uint32_t i = 0; i < 6; i++) {
      const auto wanted = request(seed * 100 + i, 1 + random() % 80, 1 + random() % 50);
      requests[*cluster.broker().generate(wanted, cluster.now())] = wanted;
      for (auto turns = random() % 20; turns > 0; turns--) cluster.turn();
    }
    cluster.run_until_answered();
    for (const auto& [id, wanted] : requests) {
      EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kLength) << "seed " << seed;
      EXPECT_EQ(cluster.answers[id].tokens, solo(wanted)) << "seed " << seed;
    }
    EXPECT_TRUE(cluster.losses.empty());
    // Afterwards the leader has forgotten everything: nothing is sent again for ever.
    for (int turn = 0; turn < 500; turn++) cluster.turn();
    cluster.broker().request_stats();
    cluster.run_until([&] {
      if (cluster.stats.empty()) cluster.broker().request_stats();
      return !cluster.stats.empty();
    });
    EXPECT_EQ(cluster.stats[0].kv_blocks_used, 0);
  }
}

TEST(Broker, CancelEndsARequestAlsoOverALossyNetwork) {
  for (uint32_t seed = 1; seed <= 10; seed++) {
    std::mt19937 random(seed);
    ClusterInAThread cluster(
        {.ranks = 1, .network = {.fate = [&](std::string_view, std::string_view) {
                       return random() % 4 == 0 ? proto::Fate{.delays = {}} : proto::Fate{};
                     }}});
    cluster.run_until_ready();
    const auto wanted = request(seed, 30, 3000);
    const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
    const uint64_t other = *cluster.broker().generate(request(7, 30, 20), cluster.now());
    for (auto turns = random() % 30; turns > 0; turns--) cluster.turn();
    cluster.broker().cancel(id, cluster.now());
    cluster.broker().cancel(12345, cluster.now());
    cluster.run_until_answered();
    EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kCancelled);
    EXPECT_LT(cluster.answers[id].tokens.size(), 3000u);
    EXPECT_EQ(cluster.answers[other].tokens, solo(request(7, 30, 20)));
  }
}

TEST(Broker, ALostWorkerEndsItsRequestsWithASentence) {
  for (const int victim : {0, 1, 2}) {
    ClusterInAThread cluster({.ranks = 3});
    cluster.run_until_ready();
    const uint64_t id = *cluster.broker().generate(request(1, 10, 3000), cluster.now());
    cluster.run_until([&] { return cluster.answers[id].tokens.size() > 5; });
    const std::string name = cluster.name(victim);
    cluster.kill(victim);
    cluster.broker().on_peer_lost(name, {base::Code::kPeerLost, "worker 2 was killed"});
    cluster.broker().on_peer_lost(name, {base::Code::kPeerLost, "said twice"});
    EXPECT_FALSE(cluster.broker().ready());
    cluster.turn();
    EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kError);
    EXPECT_EQ(cluster.answers[id].error.message, "worker 2 was killed");
    ASSERT_EQ(cluster.losses.size(), 1u);
    EXPECT_EQ(cluster.broker().generate(request(1, 5, 5), 0).error().code,
              base::Code::kUnavailable);
    // The others are told to stop, and a new group forms under the next epoch.
    cluster.turn();
    for (int rank = 0; rank < 3; rank++) {
      if (rank == victim) continue;
      EXPECT_EQ(cluster.worker(rank).state(), worker::Worker::State::kStopped);
      cluster.kill(rank);
    }
    for (int rank = 0; rank < 3; rank++) cluster.start(rank);
    cluster.run_until_ready();
    EXPECT_EQ(cluster.broker().plan_epoch(), 2u);
    const uint64_t again = *cluster.broker().generate(request(1, 10, 20), cluster.now());
    cluster.run_until_answered();
    EXPECT_EQ(cluster.answers[again].tokens, solo(request(1, 10, 20)));
  }
}

TEST(Broker, ARestartedWorkerBreaksTheOldGroup) {
  ClusterInAThread cluster({.ranks = 2});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 10, 3000), cluster.now());
  cluster.turn();
  cluster.kill(1);
  cluster.start(1);  // nobody told the broker that the first one died
  cluster.run_until([&] { return !cluster.losses.empty(); });
  EXPECT_NE(cluster.losses[0].message.find("node-1 was started again"), std::string::npos);
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kError);
}

TEST(Broker, ARunnerErrorReachesTheClientAsOneSentence) {
  ClusterInAThread cluster({.ranks = 2, .runner = {.fail_at_step = 4}});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 10, 3000), cluster.now());
  cluster.run_until_answered();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kError);
  EXPECT_EQ(cluster.answers[id].error.message, "rank 1 stopped answering");
  EXPECT_EQ(cluster.losses.size(), 1u);
}

TEST(Broker, WhatTheLeaderRefusesEndsWithItsSentence) {
  ClusterInAThread cluster({.ranks = 1, .runner = {.context = 640, .kv_block_count = 1}});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 65, 1), cluster.now());
  cluster.run_until_answered();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kError);
  EXPECT_NE(cluster.answers[id].error.message.find("needs 2 KV blocks"), std::string::npos);
  EXPECT_TRUE(cluster.losses.empty());
}

TEST(Broker, WhatNoWorkerCouldReadIsRefusedAtOnceWithBothNumbers) {
  ClusterInAThread cluster({.ranks = 1, .runner = {.context = 64, .kv_block_count = 1}});
  cluster.run_until_ready();
  const auto refusal = [&](auto change) {
    proto::GenerateRequest bad = request(1, 5, 1);
    change(bad);
    const auto started = cluster.broker().generate(bad, cluster.now());
    EXPECT_FALSE(started.ok());
    if (started.ok()) return std::string();
    EXPECT_EQ(started.error().code, base::Code::kInvalidArgument);
    return started.error().message;
  };
  const auto contains = [](const std::string& text, std::string_view part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refusal([](auto& r) { r.prompt.assign(65, 1); }),
           "65 tokens, which exceeds the context of 64");
  contains(refusal([](auto& r) { r.prompt.clear(); }), "no tokens");
  contains(refusal([](auto& r) { r.prompt[1] = -2; }), "id -2; this model has ids 0 … 96");
  contains(refusal([](auto& r) { r.prompt[1] = 97; }), "id 97; this model has ids 0 … 96");
  contains(refusal([](auto& r) { r.stop_tokens = {97}; }), "id 97");
  contains(refusal([](auto& r) { r.stop_tokens.assign(proto::kStopTokensMax + 1, 1); }),
           "1025 stop tokens, at most 1024");
  contains(refusal([](auto& r) {
             r.sampling.logit_bias.assign(proto::kLogitBiasMax + 1, {1, 1.0f});
           }),
           "4097 logit biases, at most 4096");
  contains(refusal([](auto& r) { r.sampling.logit_bias = {{97, 1.0f}}; }), "id 97");
  contains(refusal([](auto& r) { r.sampling.top_p = std::nanf(""); }), "top_p");
  contains(refusal([](auto& r) { r.sampling.top_k = -1; }), "top_k is -1");
  contains(refusal([](auto& r) { r.max_tokens = -1; }), "max_tokens is -1");
  contains(refusal([](auto& r) { r.prefill_chunk = -1; }), "prefill_chunk is -1");
  const auto score = [&](proto::ScoreRequest bad) {
    return cluster.broker().score(std::move(bad), cluster.now()).error().message;
  };
  contains(score({.tokens = {1, -2}}), "id -2");
  contains(score({.tokens = std::vector<int32_t>(65, 1)}), "65 tokens");
  contains(score({.tokens = {1}, .first_scored = 0}), "first_scored is 0");
  contains(score({.tokens = {1}, .chunk = -1}), "chunk is -1");
  EXPECT_EQ(cluster.broker().live_requests(), 0);
  // The limits themselves are allowed.
  proto::GenerateRequest most = request(1, 64, 1);
  most.stop_tokens.assign(proto::kStopTokensMax, 95);
  const uint64_t id = *cluster.broker().generate(most, cluster.now());
  cluster.run_until_answered();
  EXPECT_EQ(cluster.answers[id].tokens.size(), 1u);
}

TEST(Broker, ScoresArriveComplete) {
  ClusterInAThread cluster({.ranks = 2});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().score(
      {.tokens = request(1, 70, 1).prompt, .first_scored = 20, .want_last = true, .chunk = 7},
      cluster.now());
  cluster.run_until_answered();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kStop);
  EXPECT_EQ(cluster.answers[id].log_probabilities.size(), 50u);
  EXPECT_EQ(cluster.answers[id].last_logits.size(), 97u);
}

TEST(Broker, ABoundOnRequests) {
  Broker broker({.requests_max = 0});
  EXPECT_FALSE(broker.ready());
  ClusterInAThread cluster({.ranks = 1});
  cluster.run_until_ready();
  for (int i = 0; i < 256; i++)
    ASSERT_TRUE(cluster.broker().generate(request(1, 5, 5), cluster.now()).ok());
  EXPECT_EQ(cluster.broker().generate(request(1, 5, 5), cluster.now()).error().code,
            base::Code::kUnavailable);
}

TEST(Broker, RefusesAtTheDoorWithBothSides) {
  Alone alone;
  const proto::Hello good{.numerics_version = base::kNumericsVersion, .model_fingerprint = "model"};
  EXPECT_TRUE(alone.hello("a", good).accepted);
  proto::Hello bad = good;
  bad.rank = 1;
  bad.numerics_version = 77;
  EXPECT_NE(alone.hello("b", bad).reason.find(
                base::cat("version 77, the broker ", base::kNumericsVersion)),
            std::string::npos);
  bad = good;
  bad.rank = 1;
  bad.model_fingerprint = "other";
  EXPECT_NE(alone.hello("b", bad).reason.find("fingerprint other, the broker one of model"),
            std::string::npos);
  bad = good;
  bad.rank_count = 3;
  EXPECT_NE(alone.hello("b", bad).reason.find("counts 3 ranks, the broker 2"), std::string::npos);
  EXPECT_NE(alone.hello("b", good).reason.find("rank 0 is taken by a"), std::string::npos);
  const auto reply =
      std::get<proto::HelloReply>(alone.answer_to("c#1", {{std::string("\x08\x02\x10\x05", 4)}}));
  EXPECT_FALSE(reply.accepted);
  EXPECT_NE(reply.reason.find("2.5"), std::string::npos);
  EXPECT_NE(reply.reason.find(base::cat(proto::kWireMajor, ".", proto::kWireMinor)),
            std::string::npos);
}

TEST(Broker, ALateHelloOfAReplacedIncarnationIsToldToStop) {
  Alone alone;
  const proto::Hello hello{
      .rank_count = 2, .numerics_version = base::kNumericsVersion, .model_fingerprint = "model"};
  alone.answer_to("a#2", Alone::from("a", 2, hello));
  EXPECT_TRUE(
      std::holds_alternative<proto::Shutdown>(alone.answer_to("a#1", Alone::from("a", 1, hello))));
  for (const Event& event : alone.broker.take_events())
    EXPECT_FALSE(std::holds_alternative<GroupLostEvent>(event));
  EXPECT_TRUE(
      std::get<proto::HelloReply>(alone.answer_to("a#2", Alone::from("a", 2, hello))).accepted);
}

TEST(Broker, WhoComesAfterTheEndIsToldToStop) {
  Alone alone;
  alone.broker.shut_down("over");
  const proto::Hello hello{
      .rank_count = 2, .numerics_version = base::kNumericsVersion, .model_fingerprint = "model"};
  const auto answer = alone.answer_to("a#1", Alone::from("a", 1, hello));
  ASSERT_TRUE(std::holds_alternative<proto::Shutdown>(answer));
  EXPECT_EQ(std::get<proto::Shutdown>(answer).reason, "over");
}

TEST(Broker, StrangersStaleEpochsAndOldIncarnationsAreNotHeard) {
  Alone alone;
  const proto::Hello hello{
      .rank_count = 2, .numerics_version = base::kNumericsVersion, .model_fingerprint = "model"};
  const proto::Ready ready{.vocabulary = 9, .context = 9, .columns_max = 9};
  const auto answer = [&](const std::string& peer, proto::Message message) {
    return alone.answer_to(peer, std::move(message));
  };
  const auto is_none = [](const proto::Body& body) {
    return std::holds_alternative<proto::StatsRequest>(body);
  };
  const auto is_stop = [](const proto::Body& body) {
    return std::holds_alternative<proto::Shutdown>(body);
  };
  ASSERT_FALSE(is_none(answer("a#1", Alone::from("a", 1, hello))));
  EXPECT_TRUE(is_none(answer("a#1", {{"noise"}})));
  // Who is not, or no longer, one of the group does not know it: it is told, each time.
  EXPECT_TRUE(is_stop(answer("x#1", Alone::from("x", 1, ready, 1))));
  EXPECT_TRUE(is_stop(answer("a#1", Alone::from("a", 1, ready, 0))));
  EXPECT_TRUE(is_stop(answer("a#1", Alone::from("a", 1, ready, 2))));
  EXPECT_TRUE(is_none(answer("a#1", Alone::from("a", 2, ready, 1))));
  EXPECT_TRUE(is_none(answer("a#1", Alone::from("b", 1, ready, 1))));
  EXPECT_FALSE(is_none(answer("a#1", Alone::from("a", 1, ready, 1))));
  alone.broker.on_message("x#1", Alone::from("x", 1, proto::WorkerFailed{}, 1), 0);
  alone.broker.on_message("a#1", Alone::from("a", 1, proto::TokenChunk{.request_id = 1}, 1), 0);
  for (const Event& event : alone.broker.take_events())
    EXPECT_FALSE(std::holds_alternative<GroupLostEvent>(event));
}

TEST(Broker, AHelloOfTheDeadDoesNotBringThemBack) {
  Alone alone;
  proto::Hello hello{
      .rank_count = 2, .numerics_version = base::kNumericsVersion, .model_fingerprint = "model"};
  alone.answer_to("a#5", Alone::from("a", 5, hello));
  hello.rank = 1;
  alone.answer_to("b#6", Alone::from("b", 6, hello));
  alone.broker.on_peer_lost("b#6", {base::Code::kPeerLost, "killed"});
  EXPECT_EQ(alone.broker.plan_epoch(), 2u);
  alone.broker.take_outbox();
  // Both belonged to the broken group; what they said before it broke comes only now.
  EXPECT_TRUE(
      std::holds_alternative<proto::Shutdown>(alone.answer_to("b#6", Alone::from("b", 6, hello))));
  hello.rank = 0;
  EXPECT_TRUE(
      std::holds_alternative<proto::Shutdown>(alone.answer_to("a#5", Alone::from("a", 5, hello))));
  EXPECT_EQ(alone.broker.rank(0), nullptr);
  EXPECT_EQ(alone.broker.rank(1), nullptr);
  // Started again they are welcome.
  EXPECT_TRUE(
      std::get<proto::HelloReply>(alone.answer_to("a#7", Alone::from("a", 7, hello))).accepted);
  EXPECT_EQ(alone.broker.plan_epoch(), 2u);
}

TEST(Broker, NoTwoBrokersHaveAnEpochInCommon) {
  std::map<uint64_t, uint64_t> broker_of;
  for (const uint64_t incarnation : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    Broker broker({.incarnation = incarnation, .rank_count = 1, .model_fingerprint = "model"});
    const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                             .model_fingerprint = "model"};
    for (uint64_t worker = 1; worker <= 100; worker++) {
      broker.on_message(base::cat("a#", worker), Alone::from("a", worker, hello), 0);
      EXPECT_TRUE(broker_of.emplace(broker.plan_epoch(), incarnation).second) << incarnation;
    }
  }
  EXPECT_FALSE(broker_of.contains(0)) << "the epoch of who was never accepted";
}

TEST(Broker, AWorkerOfAnEarlierBrokerIsToldToStop) {
  Broker broker({.incarnation = 2, .rank_count = 1, .model_fingerprint = "model"});
  const proto::Hello hello{.numerics_version = base::kNumericsVersion,
                           .model_fingerprint = "model"};
  const proto::Ready ready{.vocabulary = 9, .context = 9, .columns_max = 9};
  const uint64_t earlier = Broker({.incarnation = 1}).plan_epoch();
  // Even if a hello to the earlier broker reaches the later one: the worker has its epoch already.
  broker.on_message("a#1", Alone::from("a", 1, hello), 0);
  broker.take_outbox();
  broker.on_message("a#1", Alone::from("a", 1, ready, earlier), 0);
  EXPECT_FALSE(broker.ready());
  const auto out = broker.take_outbox();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<proto::Shutdown>(proto::parse(out[0].message)->body));
}

TEST(Broker, AShutdownEndsEveryRequest) {
  ClusterInAThread cluster({.ranks = 2});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 10, 3000), cluster.now());
  cluster.run_until([&] { return cluster.answers[id].tokens.size() > 5; });
  cluster.broker().shut_down("over");
  EXPECT_EQ(cluster.broker().live_requests(), 0);
  for (int turn = 0; turn < 100; turn++) cluster.turn();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kError);
  EXPECT_EQ(cluster.answers[id].error.message, "shutting down: over");
}

TEST(Broker, AShutdownIsSaidAgainToWhoIsStillThere) {
  ClusterInAThread cluster({.ranks = 1});
  cluster.run_until_ready();
  cluster.broker().shut_down("over");
  cluster.broker().take_outbox();  // lost
  EXPECT_EQ(cluster.broker().generate(request(1, 5, 5), cluster.now()).error().message,
            "shutting down: over");
  cluster.run_until([&] { return cluster.worker(0).state() == worker::Worker::State::kStopped; },
                    1000);
}

}  // namespace
}  // namespace broker
