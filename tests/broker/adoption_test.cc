// Workers that outlive their broker, and the next broker that takes them: all of a group or none.
#include <gtest/gtest.h>

#include "base/limits.h"
#include "tests/broker/alone.h"
#include "tests/broker/cluster_in_a_thread.h"

namespace broker {
namespace {

constexpr uint64_t kOld = 77;  // an epoch of the broker before

proto::Hello hello(int rank, std::string group) {
  return {.rank = rank,
          .rank_count = 2,
          .numerics_version = base::kNumericsVersion,
          .model_fingerprint = "model",
          .group_id = std::move(group)};
}

const proto::Ready kReady{.vocabulary = 9, .context = 9, .columns_max = 9};

class Adoption : public testing::Test {
 protected:
  proto::Body answer(const std::string& node, proto::Body body, uint64_t epoch = 0) {
    broker.on_message(node + "#1", Alone::from(node, 1, std::move(body), epoch), 0);
    const auto out = broker.take_outbox();
    if (out.empty()) return proto::StatsRequest{};  // none
    EXPECT_EQ(out.back().peer, node + "#1");
    const auto parsed = proto::parse(out.back().message);
    answer_epoch = parsed->header.plan_epoch;
    return parsed->body;
  }
  template <class Body>
  static bool is(const proto::Body& body) {
    return std::holds_alternative<Body>(body);
  }
  bool accepts(const std::string& node, const proto::Hello& said) {
    const proto::Body body = answer(node, said);
    return is<proto::HelloReply>(body) && std::get<proto::HelloReply>(body).accepted;
  }

  Broker broker{{.incarnation = 5, .rank_count = 2, .model_fingerprint = "model", .adopt = true}};
  uint64_t answer_epoch = 0;
};

TEST_F(Adoption, AsksStrangersToJoinInTheEpochTheyAreToLeave) {
  ASSERT_TRUE(broker.adopting());
  EXPECT_TRUE(is<proto::Rejoin>(answer("a", kReady, kOld)));
  EXPECT_EQ(answer_epoch, kOld);
  EXPECT_TRUE(is<proto::Rejoin>(answer("a", proto::TokenChunk{.request_id = 3}, kOld)));
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  EXPECT_TRUE(accepts("a", hello(0, "g"))) << "said twice";
  EXPECT_TRUE(is<proto::Rejoin>(answer("a", kReady, kOld))) << "it did not hear us";
  EXPECT_TRUE(accepts("b", hello(1, "g")));
  EXPECT_TRUE(is<proto::ReadyReply>(answer("a", kReady, broker.plan_epoch())));
  EXPECT_FALSE(broker.ready());
  EXPECT_TRUE(is<proto::ReadyReply>(answer("b", kReady, broker.plan_epoch())));
  EXPECT_TRUE(broker.ready());
  EXPECT_FALSE(broker.adopting());
  // What is late changes nothing, and ends nobody.
  EXPECT_TRUE(is<proto::StatsRequest>(answer("a", kReady, kOld)));
  EXPECT_TRUE(is<proto::StatsRequest>(answer("a", hello(0, ""))));
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  EXPECT_TRUE(is<proto::Shutdown>(answer("c", kReady, kOld))) << "there is no place any more";
  EXPECT_TRUE(broker.ready());
  for (const Event& event : broker.take_events())
    EXPECT_FALSE(std::holds_alternative<GroupLostEvent>(event));
}

TEST_F(Adoption, TellsOfThoseThatLoadUntilItIsGivenUp) {
  EXPECT_TRUE(is<proto::Rejoin>(answer("a", proto::LoadProgress{7, 90}, kOld)));
  const auto events = broker.take_events();
  ASSERT_EQ(events.size(), 1u);
  const auto* load = std::get_if<AdoptLoadEvent>(&events[0]);
  ASSERT_NE(load, nullptr);
  EXPECT_EQ(load->peer, "a#1");
  EXPECT_EQ(load->bytes_done, 7u);
  EXPECT_EQ(load->bytes_total, 90u);
  EXPECT_TRUE(is<proto::Rejoin>(answer("a", kReady, kOld)));
  EXPECT_TRUE(accepts("a", hello(0, "g"))) << "it has loaded";
  EXPECT_TRUE(broker.take_events().empty());
  broker.give_up_adoption("too slow");
  EXPECT_TRUE(is<proto::Shutdown>(answer("b", proto::LoadProgress{7, 90}, kOld)));
  EXPECT_TRUE(broker.take_events().empty());
}

TEST_F(Adoption, TakesNoRanksOfTwoGroups) {
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  EXPECT_TRUE(is<proto::Shutdown>(answer("b", hello(1, "h"))));
  EXPECT_TRUE(is<proto::StatsRequest>(answer("c", hello(1, ""))))
      << "one that loads waits until somebody decides";
  EXPECT_TRUE(accepts("d", hello(1, "g")));
}

TEST_F(Adoption, TakesNoRankTwice) {
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  const uint64_t epoch = broker.plan_epoch();
  broker.on_message("a#2", Alone::from("a", 2, hello(0, "g")), 0);
  const auto out = broker.take_outbox();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(is<proto::Shutdown>(proto::parse(out[0].message)->body));
  EXPECT_EQ(broker.plan_epoch(), epoch) << "the first one stays";
}

TEST_F(Adoption, RefusesAnotherModel) {
  proto::Hello other = hello(0, "g");
  other.model_fingerprint = "other";
  const proto::Body body = answer("a", other);
  ASSERT_TRUE(is<proto::HelloReply>(body));
  EXPECT_FALSE(std::get<proto::HelloReply>(body).accepted);
}

TEST_F(Adoption, GivenUpAllAreToldToStopAndOthersLoad) {
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  const uint64_t epoch = broker.plan_epoch();
  broker.give_up_adoption("not all ranks came");
  const auto out = broker.take_outbox();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].peer, "a#1");
  EXPECT_EQ(std::get<proto::Shutdown>(proto::parse(out[0].message)->body).reason,
            "not all ranks came");
  EXPECT_FALSE(broker.adopting());
  EXPECT_EQ(broker.rank(0), nullptr);
  EXPECT_NE(broker.plan_epoch(), epoch);
  EXPECT_TRUE(broker.take_events().empty()) << "there was no group to lose";
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", hello(0, "g"))));
  EXPECT_TRUE(is<proto::Shutdown>(answer("b", hello(1, "g"))));
  EXPECT_TRUE(is<proto::Shutdown>(answer("b", kReady, kOld)));
  EXPECT_TRUE(accepts("c", hello(0, "")));
  EXPECT_TRUE(accepts("d", hello(1, "")));
}

TEST_F(Adoption, GivingUpDoesNothingToAGroupThatIsReady) {
  for (const char* node : {"a", "b"}) {
    EXPECT_TRUE(accepts(node, hello(node[0] - 'a', "g")));
    answer(node, kReady, broker.plan_epoch());
  }
  broker.give_up_adoption("late");
  EXPECT_TRUE(broker.ready());
  EXPECT_TRUE(broker.take_outbox().empty());
}

TEST_F(Adoption, AWorkerThatDiesMeanwhileEndsIt) {
  EXPECT_TRUE(accepts("a", hello(0, "g")));
  EXPECT_TRUE(accepts("b", hello(1, "g")));
  broker.on_peer_lost("b#1", {base::Code::kPeerLost, "killed"});
  EXPECT_FALSE(broker.adopting());
  EXPECT_EQ(broker.rank(0), nullptr);
}

TEST_F(Adoption, WhoFailsMayEndAndWhoComesAtTheEndStops) {
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", proto::WorkerFailed{}, kOld)));
  broker.shut_down("over");
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", kReady, kOld)));
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", hello(0, "g"))));
}

TEST_F(Adoption, ABrokerThatDoesNotAdoptTellsThemToStop) {
  broker.give_up_adoption("no");
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", kReady, kOld)));
  EXPECT_TRUE(is<proto::Shutdown>(answer("a", hello(0, "g"))));
}

TEST(AdoptionOfACluster, TheNextBrokerGoesOnWithTheSameWorkers) {
  for (const int ranks : {1, 3}) {
    ClusterInAThread cluster({.ranks = ranks});
    cluster.run_until_ready();
    for (int i = 0; i < 5; i++)
      ASSERT_TRUE(cluster.broker().generate({.prompt = {1, 2, 3}}, cluster.now()).ok());
    for (int turn = 0; turn < 30; turn++) cluster.turn();
    ASSERT_GT(cluster.worker(0).leader()->stats().kv_blocks_used, 0);
    cluster.restart_broker({.incarnation = 9, .adopt = true});
    cluster.run_until_ready();
    EXPECT_EQ(cluster.worker(0).leader()->stats().kv_blocks_used, 0) << "their askers are gone";
    EXPECT_EQ(cluster.worker(0).leader()->kept().requests, 0u);
    EXPECT_EQ(cluster.loads(), ranks) << "nobody loaded again";
    const proto::GenerateRequest wanted{.prompt = {5, 6}, .max_tokens = 30};
    const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
    cluster.answers.clear();
    cluster.run_until_answered();
    ClusterInAThread fresh({.ranks = 1});
    fresh.run_until_ready();
    const uint64_t right = *fresh.broker().generate(wanted, fresh.now());
    fresh.run_until_answered();
    EXPECT_EQ(cluster.answers[id].tokens, fresh.answers[right].tokens);
    EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kLength);
  }
}

}  // namespace
}  // namespace broker
