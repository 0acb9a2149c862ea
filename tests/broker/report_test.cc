// What is told of placement: evaluation, pages, and the round of questions.
#include "broker/report.h"

#include <gtest/gtest.h>

#include <map>

#include "base/cat.h"
#include "base/limits.h"
#include "broker/broker.h"
#include "broker/http/report_pages.h"

namespace broker {
namespace {

using proto::PlacementClass;
using proto::PlacementReply;

PlacementReply half_wrong(int os_node) {
  return {.rank = 1,
          .os_node = os_node,
          .page_bytes = 4096,
          .huge_bytes = 0,
          .source = "move_pages",
          .classes = {
              {.name = "experts", .bytes = 800, .bytes_on_node = {200, 600}, .bytes_asked = 800},
              {.name = "KV cache",
               .bytes = 400,
               .bytes_on_node = {0, 100},
               .bytes_absent = 300,
               .bytes_asked = 400}}};
}

TEST(Misplaced, CountsWhatIsInMemoryOnAnotherNode) {
  EXPECT_EQ(misplaced_in(half_wrong(1).classes[0], 1).percent(), 25);
  EXPECT_EQ(misplaced_in(half_wrong(0).classes[0], 0).percent(), 75);
  EXPECT_EQ(misplaced_in(half_wrong(9).classes[0], 9).percent(), 100);
  EXPECT_EQ(misplaced_in(half_wrong(-1).classes[0], -1).percent(), 0) << "no node was meant";
  EXPECT_EQ(misplaced_in(half_wrong(1).classes[1], 1).percent(), 0) << "absent is not elsewhere";
  const Misplaced all = misplaced_in(half_wrong(1));
  EXPECT_EQ(all.present, 900u);
  EXPECT_EQ(all.elsewhere, 200u);
  EXPECT_EQ(Misplaced{}.percent(), 0);
}

TEST(PlacementPage, TellsEveryClassAndNode) {
  EXPECT_FALSE(is_sample(half_wrong(1)));
  const std::string body = placement_page({{half_wrong(1)}}).body;
  EXPECT_EQ(body,
            R"({"object":"placement","ranks":[{"group":0,"rank":1,"node":1,"source":"move_pages",)"
            R"("sample":false,"page_bytes":4096,"huge_page_bytes":0,)"
            R"("misplaced_percent":22.22222222222222,"classes":[)"
            R"({"name":"experts","bytes":800,"bytes_on_node":{"0":200,"1":600},)"
            R"("bytes_absent":0,"bytes_asked":800,"misplaced_percent":25.0},)"
            R"({"name":"KV cache","bytes":400,"bytes_on_node":{"1":100},)"
            R"("bytes_absent":300,"bytes_asked":400,"misplaced_percent":0.0}]}]})");
}

TEST(PlacementPage, KnowsNoRightPlaceOnSimulatedNodes) {
  PlacementReply rank = half_wrong(-1);
  rank.classes[0].bytes_asked = 100;
  const std::string body = placement_page({{rank}}).body;
  EXPECT_NE(body.find(R"("node":null)"), std::string::npos) << body;
  EXPECT_NE(body.find(R"("sample":true)"), std::string::npos) << body;
  EXPECT_NE(body.find(R"("misplaced_percent":null)"), std::string::npos) << body;
}

/// A broker of two ranks that are ready, and what it sends them.
class Group {
 public:
  Group() {
    for (int rank = 0; rank < 2; rank++) {
      send(rank, proto::Hello{.rank = rank,
                              .rank_count = 2,
                              .numerics_version = base::kNumericsVersion,
                              .model_fingerprint = "model"});
      for (const proto::Body& body : sent(rank))
        if (const auto* reply = std::get_if<proto::HelloReply>(&body)) epoch_ = reply->plan_epoch;
    }
    for (int rank = 0; rank < 2; rank++)
      send(rank, proto::Ready{.vocabulary = 9, .context = 9, .columns_max = 1});
    EXPECT_TRUE(broker.ready());
    for (int rank = 0; rank < 2; rank++) sent(rank);
    events();
  }

  void send(int rank, proto::Body body) {
    broker.on_message(base::cat("peer-", rank),
                      proto::encode({.header = {.node_id = base::cat("node-", rank),
                                                .incarnation = 1,
                                                .plan_epoch = epoch_},
                                     .body = std::move(body)}),
                      ++now_);
    for (Outgoing& out : broker.take_outbox())
      outbox_[out.peer].push_back(proto::parse(out.message)->body);
  }
  std::vector<proto::Body> sent(int rank) {
    for (Outgoing& out : broker.take_outbox())
      outbox_[out.peer].push_back(proto::parse(out.message)->body);
    return std::exchange(outbox_[base::cat("peer-", rank)], {});
  }
  bool asked(int rank) {
    for (const proto::Body& body : sent(rank))
      if (std::holds_alternative<proto::PlacementRequest>(body)) return true;
    return false;
  }
  /// The placements among the events since the last call.
  std::vector<PlacementEvent> events() {
    std::vector<PlacementEvent> found;
    for (Event& event : broker.take_events())
      if (auto* own = std::get_if<PlacementEvent>(&event)) found.push_back(std::move(*own));
    return found;
  }

  Broker broker{{.rank_count = 2, .model_fingerprint = "model"}};

 private:
  uint64_t epoch_ = 0;
  base::TimeNs now_ = 0;
  std::map<std::string, std::vector<proto::Body>> outbox_;
};

TEST(PlacementRound, EndsWhenEveryRankHasAnswered) {
  Group group;
  group.broker.request_placement();
  EXPECT_TRUE(group.asked(0));
  EXPECT_TRUE(group.asked(1));
  group.send(1, PlacementReply{.rank = 0, .source = "of rank 1"});
  group.send(1, PlacementReply{.rank = 1, .source = "of rank 1 again"});
  EXPECT_TRUE(group.events().empty()) << "the second answer of one rank is no answer of the other";
  group.send(0, PlacementReply{.rank = 0, .source = "of rank 0"});
  const auto events = group.events();
  ASSERT_EQ(events.size(), 1u);
  ASSERT_EQ(events[0].ranks.size(), 2u);
  EXPECT_EQ(events[0].ranks[0].source, "of rank 0");
  EXPECT_EQ(events[0].ranks[1].source, "of rank 1 again");
  EXPECT_EQ(events[0].ranks[1].rank, 1) << "by who it is, not by what it says";
}

TEST(PlacementRound, BeginsAnewAfterALossAndAsksNobodyWithoutAGroup) {
  Group group;
  group.broker.request_placement();
  group.send(0, PlacementReply{.source = "old"});
  group.broker.on_peer_lost("peer-1", {base::Code::kPeerLost, "killed"});
  group.sent(0);
  group.broker.request_placement();
  EXPECT_FALSE(group.asked(0));
  EXPECT_TRUE(group.events().empty());
}

TEST(StatusPage, TellsWorkersAndNumbers) {
  const ServedModel model{.id = "tales", .size_bytes = 12, .architecture = "qwen3moe"};
  GroupStatus status{.state = GroupStatus::State::kReady, .context = 4096};
  ServerStatus server{.version = "1.2.3",
                      .pid = 77,
                      .started_at = 1'000'000'000,
                      .now = 3'500'000'000,
                      .restarts = 2,
                      .answers_live = 3,
                      .answers_max = 68};
  server.stats = {.steps = 5,
                  .columns = 6,
                  .step_ns = 2'000'000'000,
                  .kv_blocks_used = 1,
                  .kv_blocks_peak = 2,
                  .kv_block_count = 64,
                  .kv_blocks_reused = 9};
  server.ranks = {{.rank = 0, .os_node = 1, .pid = 78, .cpus = "0-3"}};
  server.ranks[0].ready.arena_bytes = 100;
  server.ranks[0].ready.exchange = "shm";
  const std::string body = status_page(model, status, server).body;
  for (const char* const part :
       {R"("status":"ready")", R"("id":"tales")", R"("context_length":4096)", R"("pid":77)",
        R"("uptime_seconds":2.5)", R"("restarts":2)", R"("answers":{"live":3,"limit":68})",
        R"("kv_blocks":{"used":1,"peak":2,"total":64,"reused":9})", R"("exchange":"shm")",
        R"("rank":0,"node":1,"pid":78,"cpus":"0-3","weight_bytes":100)"})
    EXPECT_NE(body.find(part), std::string::npos) << part << " in " << body;
  status = {.state = GroupStatus::State::kRestarting, .reason = "worker 1 was killed"};
  const Response response = status_page(model, status, {});
  EXPECT_EQ(response.status, 200) << "it is the status that was asked for";
  EXPECT_NE(response.body.find("worker 1 was killed"), std::string::npos);
  EXPECT_NE(response.body.find(R"("context_length":null)"), std::string::npos);
  EXPECT_NE(response.body.find(R"("ranks":[])"), std::string::npos);
}

using State = GroupStatus::State;

TEST(MergedStatus, IsReadyWhenOneIs) {
  const GroupStatus ready{.state = State::kReady,
                          .bytes_done = 5,
                          .bytes_total = 5,
                          .context = 64,
                          .vocabulary = 90,
                          .retry_seconds = 2};
  const GroupStatus lost{.state = State::kRestarting,
                         .bytes_total = 5,
                         .reason = "killed",
                         .retry_seconds = 9,
                         .stalled = true};
  const GroupStatus both = merged(std::vector{lost, ready});
  EXPECT_EQ(both.state, State::kReady);
  EXPECT_EQ(both.groups, 2);
  EXPECT_EQ(both.groups_ready, 1);
  EXPECT_EQ(both.context, 64);
  EXPECT_EQ(both.reason, "") << "requests are answered";
  EXPECT_FALSE(both.stalled) << "one of them moves";
  EXPECT_EQ(both.bytes_done, 5u);
  EXPECT_EQ(both.bytes_total, 10u);
  EXPECT_NE(ready_page(both).body.find(R"("groups":{"ready":1,"total":2})"), std::string::npos);
  const GroupStatus none = merged(std::vector{GroupStatus{.retry_seconds = 3}, lost});
  EXPECT_EQ(none.state, State::kRestarting);
  EXPECT_EQ(none.reason, "killed");
  EXPECT_EQ(none.retry_seconds, 3);
  EXPECT_EQ(ready_page(none).status, 503);
  EXPECT_TRUE(merged(std::vector{lost, lost}).stalled);
  GroupStatus silent = ready;
  silent.reason = "worker 0 has said nothing for 31 s";
  EXPECT_EQ(ready_page(merged(std::vector{silent, ready})).status, 200);
  const GroupStatus quiet = merged(std::vector{lost, silent});
  EXPECT_EQ(quiet.reason, silent.reason);
  EXPECT_EQ(ready_page(quiet).status, 503);
  EXPECT_NE(ready_page(quiet).body.find(silent.reason), std::string::npos);
  EXPECT_EQ(health_page(quiet).status, 503);
  EXPECT_EQ(live_page(quiet).status, 200);
  EXPECT_FALSE(not_ready(quiet)) << "requests are taken";
  EXPECT_EQ(merged(std::vector{GroupStatus()}).state, State::kLoading);
  EXPECT_EQ(ready_page(merged(std::vector{ready})).body, R"({"status":"ready"})");
}

TEST(StatusPage, TellsEveryGroup) {
  ServerStatus server;
  server.groups = {{.status = {.state = State::kReady}, .load = {.requests = 3, .tokens = 70}},
                   {.status = {.state = State::kRestarting, .reason = "killed"}, .restarts = 2}};
  server.groups[0].stats.steps = 11;
  server.ranks = {{.group = 1, .rank = 0}};
  const std::string body = status_page({}, {}, server).body;
  for (const char* const part :
       {R"("groups":[{"group":0,"status":"ready","message":"ready","restarts":0,"requests":3,)",
        R"("tokens":70,"kv_blocks":)", R"("steps":{"count":11,)",
        R"({"group":1,"status":"restarting")", R"("restarts":2)",
        R"("ranks":[{"group":1,"rank":0,)"})
    EXPECT_NE(body.find(part), std::string::npos) << part << " in " << body;
}

TEST(MergedStats, AreSums) {
  const std::vector<proto::StatsReply> groups = {
      {.steps = 2, .step_ns = 10, .waits_per_layer = 3, .kv_blocks_used = 1, .kv_block_count = 8},
      {.steps = 5, .step_ns = 20, .kv_blocks_used = 2, .kv_block_count = 8}};
  const proto::StatsReply all = merged(groups);
  EXPECT_EQ(all.steps, 7u);
  EXPECT_EQ(all.step_ns, 30u);
  EXPECT_EQ(all.waits_per_layer, 3);
  EXPECT_EQ(all.kv_blocks_used, 3);
  EXPECT_EQ(all.kv_block_count, 16);
  EXPECT_TRUE(all.expert_use.empty());
}

using Use = std::vector<proto::LayerUse>;

Use merged_use(const Use& one, const Use& other) {
  return merged(std::vector<proto::StatsReply>{{.expert_use = one}, {.expert_use = other}})
      .expert_use;
}

TEST(MergedStats, AddTheChoicesOfReplicas) {
  const Use dense_first = {{}, {.choices = {3, 0, 5}, .owners = {0, 1, 0}}};
  EXPECT_EQ(merged_use(dense_first, dense_first),
            (Use{{}, {.choices = {6, 0, 10}, .owners = {0, 1, 0}}}));
  EXPECT_EQ(merged_use(dense_first, {}), dense_first) << "the other one has told nothing yet";
  EXPECT_EQ(merged_use({}, dense_first), dense_first);
  // Layers that one leader does not compute are told by the other.
  EXPECT_EQ(merged_use({{.choices = {1, 2}}, {}}, {{}, {.choices = {4, 8}}}),
            (Use{{.choices = {1, 2}}, {.choices = {4, 8}}}));
  EXPECT_EQ(
      merged_use({{.choices = {1, 2}, .owners = {0, 1}}}, {{.choices = {4, 8}, .owners = {1, 0}}}),
      (Use{{.choices = {5, 10}}}))
      << "each replica has dealt them out by its own counts";
  EXPECT_EQ(merged_use({{.choices = {1}}}, {{.choices = {1, 1}}}), (Use{{.choices = {2, 1}}}));
}

TEST(ExpertsPage, TellsEveryGroupAndLayer) {
  EXPECT_EQ(experts_page({}).body, R"({"object":"expert_use","groups":[]})");
  ServerStatus server;
  server.groups.resize(2);
  server.groups[0].stats.expert_use = {{}, {.choices = {7, uint64_t{1} << 40}, .owners = {1, 0}}};
  const Response page = experts_page(server);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, R"({"object":"expert_use","groups":[{"group":0,"layers":[)"
                       R"({"layer":0,"choices":[],"owners":null},)"
                       R"({"layer":1,"choices":[7,1099511627776],"owners":[1,0]}]},)"
                       R"({"group":1,"layers":[]}]})");
}

}  // namespace
}  // namespace broker
