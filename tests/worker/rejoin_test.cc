// A worker that outlives its broker and joins the next one.
#include <gtest/gtest.h>

#include "tests/worker/scripted_runner.h"
#include "worker/worker.h"

namespace worker {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;
constexpr uint64_t kFirst = 3, kSecondEpoch = 90;

proto::Message from_broker(proto::Body body, uint64_t epoch) {
  return proto::encode({{.node_id = "broker", .plan_epoch = epoch}, std::move(body)});
}

/// A leader or a follower that is ready in the first broker's epoch.
struct Loaded {
  ScriptedRunner runner{{}};
  Worker worker;

  explicit Loaded(int rank)
      : worker({.node_id = "w",
                .incarnation = 7,
                .rank = rank,
                .rank_count = 2,
                .model_fingerprint = "f",
                .group_id = "run-1"}) {
    worker.on_tick(0);
    const auto first = sent();
    EXPECT_EQ(std::get<proto::Hello>(first.at(0).body).group_id, "") << "it has not loaded yet";
    hear(proto::HelloReply{.accepted = true, .plan_epoch = kFirst}, 0);
    if (rank == 0) {
      worker.lead({}, runner, {.token_count = 90}, nullptr);
    } else {
      worker.loaded({.vocabulary = 1, .context = 1, .columns_max = 1});
    }
    worker.on_tick(0);
    hear(proto::ReadyReply{}, kFirst);
    sent();
  }
  void hear(proto::Body body, uint64_t epoch, base::TimeNs now = 0) {
    worker.on_message(from_broker(std::move(body), epoch), now);
  }
  std::vector<proto::Envelope> sent() {
    std::vector<proto::Envelope> envelopes;
    for (const proto::Message& message : worker.take_outbox())
      envelopes.push_back(*proto::parse(message));
    return envelopes;
  }
  int32_t used() const { return worker.leader()->stats().kv_blocks_used; }
};

const proto::GenerateRequest kRequest{
    .request_id = 1, .prompt = std::vector<int32_t>(100, 5), .max_tokens = 900};

TEST(Rejoin, ForgetsEverythingSaysHelloAndIsReadyAtOnce) {
  for (const int rank : {0, 1}) {
    Loaded loaded(rank);
    Worker& worker = loaded.worker;
    if (rank == 0) {
      loaded.hear(kRequest, kFirst);
      for (int tick = 0; tick < 10; tick++) worker.on_tick(0);
      ASSERT_GT(loaded.used(), 0);
      worker.on_message(from_broker(kRequest, kFirst), 0);
    }
    loaded.sent();
    loaded.hear(proto::Rejoin{}, kFirst, kSecond);
    EXPECT_EQ(worker.state(), Worker::State::kHello);
    EXPECT_EQ(worker.plan_epoch(), 0u);
    if (rank == 0) {
      EXPECT_EQ(loaded.used(), 0);
      EXPECT_EQ(worker.leader()->kept().requests, 0u);
      loaded.hear(kRequest, kFirst, kSecond);  // of the broker before
      loaded.hear(kRequest, 0, kSecond);
      EXPECT_FALSE(worker.has_work());
    }
    worker.on_tick(kSecond);
    auto out = loaded.sent();
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(std::get<proto::Hello>(out[0].body).group_id, "run-1");
    EXPECT_EQ(out[0].header.plan_epoch, 0u);
    worker.on_tick(kSecond + kSecond / 2);
    EXPECT_EQ(loaded.sent().size(), 1u) << "until answered";
    loaded.hear(proto::HelloReply{.accepted = true, .plan_epoch = kSecondEpoch}, kSecondEpoch,
                2 * kSecond);
    EXPECT_EQ(worker.state(), Worker::State::kReady) << "without loading";
    worker.on_tick(2 * kSecond);
    out = loaded.sent();
    ASSERT_EQ(out.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<proto::Ready>(out[0].body));
    EXPECT_EQ(out[0].header.plan_epoch, kSecondEpoch);
    if (rank != 0) continue;
    loaded.hear(kRequest, kSecondEpoch, 2 * kSecond);
    EXPECT_TRUE(worker.has_work());
  }
}

TEST(Rejoin, OneForAnEpochThatWasLeftIsNotMeant) {
  Loaded loaded(0);
  loaded.hear(proto::Rejoin{}, kFirst);
  loaded.hear(proto::Rejoin{}, kFirst);
  loaded.worker.on_tick(0);
  loaded.hear(proto::HelloReply{.accepted = true, .plan_epoch = kSecondEpoch}, kSecondEpoch);
  loaded.hear(kRequest, kSecondEpoch);
  loaded.hear(proto::Rejoin{}, kFirst);
  loaded.hear(proto::Rejoin{}, 0);
  EXPECT_EQ(loaded.worker.state(), Worker::State::kReady);
  EXPECT_EQ(loaded.worker.plan_epoch(), kSecondEpoch);
  EXPECT_TRUE(loaded.worker.has_work());
}

TEST(Rejoin, ARefusalEndsIt) {
  Loaded loaded(1);
  loaded.hear(proto::Rejoin{}, kFirst);
  loaded.hear(proto::HelloReply{.accepted = false, .reason = "no"}, kSecondEpoch);
  EXPECT_EQ(loaded.worker.state(), Worker::State::kFailed);
}

TEST(Rejoin, WhoStillLoadsGoesOnLoading) {
  Worker worker({.node_id = "w", .rank = 1, .rank_count = 2, .group_id = "g"});
  worker.on_message(from_broker(proto::HelloReply{.accepted = true, .plan_epoch = kFirst}, kFirst),
                    0);
  worker.on_message(from_broker(proto::Rejoin{}, kFirst), 0);
  EXPECT_EQ(worker.state(), Worker::State::kLoading);
  EXPECT_EQ(worker.plan_epoch(), kFirst);
}

TEST(Rejoin, WithoutABrokerItComputesNothingAndSaysOftenThatItIsHere) {
  Loaded loaded(0);
  Worker& worker = loaded.worker;
  loaded.hear(kRequest, kFirst);
  worker.on_tick(0);
  loaded.sent();
  worker.on_broker_lost();
  EXPECT_EQ(loaded.used(), 0);
  EXPECT_FALSE(worker.has_work());
  int said = 0;
  for (base::TimeNs now = 0; now < 10 * kSecond; now += kSecond / 50) {
    // An answer of the dead one that comes late calms nobody.
    if (now == kSecond) loaded.hear(proto::ReadyReply{}, kFirst, now);
    worker.on_tick(now);
    for (const proto::Envelope& envelope : loaded.sent()) {
      EXPECT_TRUE(std::holds_alternative<proto::Ready>(envelope.body));
      said++;
    }
  }
  EXPECT_GE(said, 19);
  EXPECT_LE(said, 20);
  // The next one is found: the hurry is over.
  loaded.hear(proto::Rejoin{}, kFirst, 10 * kSecond);
  loaded.hear(proto::HelloReply{.accepted = true, .plan_epoch = kSecondEpoch}, kSecondEpoch);
  worker.on_tick(10 * kSecond);
  loaded.hear(proto::ReadyReply{}, kSecondEpoch);
  loaded.sent();
  worker.on_tick(11 * kSecond - 1);
  EXPECT_TRUE(loaded.sent().empty());
}

}  // namespace
}  // namespace worker
