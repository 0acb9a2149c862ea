// Requests over several groups: who gets what, what becomes of the requests of a lost group, and
// that answers are those of a single group whatever happens.
#include "broker/router.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/broker/cluster_in_a_thread.h"

namespace broker {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;

TEST(LoadBoard, TakesTheGroupWithLeastToDo) {
  const auto pick = [](std::vector<GroupLoad> board) { return least_loaded(board); };
  EXPECT_EQ(pick({}), std::nullopt);
  EXPECT_EQ(pick({{}, {}}), std::nullopt) << "none is ready";
  EXPECT_EQ(pick({{.ready = true, .full = true}}), std::nullopt);
  EXPECT_EQ(pick({{.requests = 0}, {.ready = true, .requests = 9}}), 1u);
  EXPECT_EQ(pick({{.ready = true, .requests = 2}, {.ready = true, .requests = 1}}), 1u);
  EXPECT_EQ(pick({{.ready = true, .requests = 2, .tokens = 50},
                  {.ready = true, .requests = 2, .tokens = 40}}),
            1u);
  EXPECT_EQ(pick({{.ready = true}, {.ready = true}}), 0u) << "whoever comes alone stays together";
  EXPECT_EQ(pick({{.ready = true, .held = true}, {.ready = true, .requests = 50}}), 1u);
  EXPECT_EQ(pick({{.ready = true, .held = true}, {.ready = false}}), 0u);
}

/// Some groups, each with its own network and clock; the clocks go alike.
class Groups {
 public:
  explicit Groups(size_t count, ClusterInAThread::Options options = {}) {
    options.broker.replay = true;
    std::vector<Broker*> brokers;
    for (size_t group = 0; group < count; group++) {
      clusters_.push_back(std::make_unique<ClusterInAThread>(options));
      clusters_.back()->on_event = [this, group](Event& event) { note(group, event); };
      clusters_.back()->run_until_ready();
      brokers.push_back(&clusters_.back()->broker());
    }
    router.emplace(std::move(brokers));
  }
  void turn() {
    for (auto& cluster : clusters_) cluster->turn();
    router->on_tick(now());
  }
  template <class Done>
  void run_until(Done done, int turns = 20000) {
    while (!done() && turns-- > 0) turn();
    EXPECT_GE(turns, 0) << "never came to that";
  }
  void run_for(base::TimeNs time) {
    for (const base::TimeNs end = now() + time; now() < end;) turn();
  }
  bool all_answered(size_t count) const {
    size_t ended = 0;
    for (const auto& [id, answer] : answers) ended += answer.finish != proto::Finish::kNone;
    return ended == count;
  }
  void kill(size_t group) {
    for (int rank = 0; rank < 2; rank++) {
      const std::string peer = clusters_[group]->name(rank);
      clusters_[group]->kill(rank);
      clusters_[group]->broker().on_peer_lost(peer, {base::Code::kPeerLost, "killed"});
    }
    alive_[group] = false;
  }
  void start(size_t group) {
    for (int rank = 0; rank < 2; rank++) clusters_[group]->start(rank);
    alive_[group] = true;
  }
  bool is_alive(size_t group) { return !alive_.contains(group) || alive_[group]; }
  ClusterInAThread& at(size_t group) { return *clusters_[group]; }
  size_t count() const { return clusters_.size(); }
  base::TimeNs now() const { return clusters_[0]->now(); }

  std::optional<Router> router;
  std::map<uint64_t, Answer> answers;  // by the router's ids

 private:
  void note(size_t group, Event& event) {
    if (!router) return;
    router->on_event(group, event);
    const auto* token = std::get_if<TokenEvent>(&event);
    if (token == nullptr) return;
    ASSERT_NE(token->chunk.request_id, 0u) << "an answer that is nobody's";
    Answer& answer = answers[token->chunk.request_id];
    EXPECT_EQ(answer.finish, proto::Finish::kNone) << "an event after the last one";
    answer.tokens.insert(answer.tokens.end(), token->chunk.tokens.begin(),
                         token->chunk.tokens.end());
    answer.finish = token->chunk.finish;
    answer.error = token->chunk.error;
  }

  std::vector<std::unique_ptr<ClusterInAThread>> clusters_;
  std::map<size_t, bool> alive_;
};

proto::GenerateRequest request(int32_t seed, int64_t tokens = 40) {
  proto::GenerateRequest request{.prompt = {1 + seed % 90, 2, 3}, .max_tokens = tokens};
  request.sampling.temperature = 0.9f;
  request.sampling.seed = static_cast<uint64_t>(seed);
  return request;
}

std::vector<int32_t> alone(int32_t seed, int64_t tokens = 40) {
  Groups one(1);
  const auto id = one.router->generate(request(seed, tokens), one.now());
  EXPECT_TRUE(id.ok());
  one.run_until([&] { return one.all_answered(1); });
  return one.answers[*id].tokens;
}

TEST(Router, SpreadsRequestsAndKnowsThemByItsOwnIds) {
  Groups groups(2);
  std::vector<uint64_t> ids;
  for (int seed = 0; seed < 6; seed++)
    ids.push_back(*groups.router->generate(request(seed), groups.now()));
  EXPECT_EQ(ids, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
  for (size_t i = 0; i < ids.size(); i++) EXPECT_EQ(groups.router->group_of(ids[i]), i % 2);
  EXPECT_EQ(groups.router->board()[1].requests, 3);
  groups.run_until([&] { return groups.all_answered(6); });
  for (int seed = 0; seed < 6; seed++)
    EXPECT_EQ(groups.answers[ids[static_cast<size_t>(seed)]].tokens, alone(seed)) << seed;
  EXPECT_EQ(groups.router->group_of(ids[0]), std::nullopt) << "forgotten";
}

// Both groups call theirs number 1.
TEST(Router, CancelsInTheRightGroup) {
  Groups groups(2);
  const uint64_t first = *groups.router->generate(request(1), groups.now());
  const uint64_t second = *groups.router->generate(request(2, 4000), groups.now());
  groups.run_for(kSecond / 5);
  groups.router->cancel(second, groups.now());
  groups.router->cancel(99, groups.now());
  groups.run_until([&] { return groups.all_answered(2); });
  EXPECT_EQ(groups.answers[first].finish, proto::Finish::kLength);
  EXPECT_EQ(groups.answers[second].finish, proto::Finish::kCancelled);
}

TEST(Router, RefusesOnlyWhenNoGroupIsReady) {
  Groups groups(2);
  groups.kill(0);
  EXPECT_TRUE(groups.router->ready());
  const auto id = groups.router->generate(request(1), groups.now());
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(groups.router->group_of(*id), 1u);
  groups.kill(1);
  EXPECT_FALSE(groups.router->ready());
  EXPECT_EQ(groups.router->generate(request(2), groups.now()).error().code,
            base::Code::kUnavailable);
  groups.start(1);
  groups.run_until([&] { return groups.all_answered(1); });
}

TEST(Router, ARequestWaitsForItsOwnGroupFirst) {
  Groups groups(2);
  const uint64_t id = *groups.router->generate(request(1), groups.now());
  groups.run_until([&] { return groups.answers[id].tokens.size() > 5; });
  groups.kill(0);
  groups.run_for(Router::kPatience / 2);
  groups.start(0);
  groups.run_until([&] { return groups.all_answered(1); });
  EXPECT_EQ(groups.answers[id].tokens, alone(1));
  EXPECT_EQ(groups.at(1).broker().load().tokens, 0);
  EXPECT_EQ(groups.at(1).answers.size(), 0u) << "the other one never saw it";
}

TEST(Router, ARequestWhoseGroupStaysAwayGoesOnInAnotherOne) {
  Groups groups(3);
  const uint64_t id = *groups.router->generate(request(1), groups.now());
  groups.run_until([&] { return groups.answers[id].tokens.size() > 5; });
  const size_t before = groups.answers[id].tokens.size();
  groups.kill(0);
  groups.kill(1);
  groups.run_for(Router::kPatience + kSecond);
  EXPECT_GT(groups.answers[id].tokens.size(), before);
  groups.run_until([&] { return groups.all_answered(1); });
  EXPECT_EQ(groups.answers[id].tokens, alone(1));
  EXPECT_EQ(groups.at(0).broker().live_requests(), 0);
}

TEST(Router, NobodyIsReadySoAllWait) {
  Groups groups(2);
  const uint64_t id = *groups.router->generate(request(1), groups.now());
  groups.kill(0);
  groups.kill(1);
  groups.run_for(3 * Router::kPatience);
  EXPECT_EQ(groups.router->group_of(id), 0u);
  groups.start(1);
  groups.run_until([&] { return groups.all_answered(1); });
  EXPECT_EQ(groups.answers[id].tokens, alone(1));
}

TEST(Router, WhatWaitsCanBeCancelledBeforeAndAfterItMoves) {
  Groups groups(2);
  const uint64_t first = *groups.router->generate(request(1, 4000), groups.now());
  groups.run_for(kSecond / 5);
  groups.kill(0);
  const uint64_t second = *groups.router->generate(request(2, 4000), groups.now());
  groups.router->cancel(first, groups.now());
  groups.run_until([&] { return groups.all_answered(1); });
  EXPECT_EQ(groups.answers[first].finish, proto::Finish::kCancelled);
  groups.kill(1);
  groups.start(0);
  groups.run_until([&] { return groups.router->group_of(second) == 0u; });
  groups.router->cancel(second, groups.now());
  groups.run_until([&] { return groups.all_answered(2); });
  EXPECT_EQ(groups.answers[second].finish, proto::Finish::kCancelled);
}

TEST(Router, WhatMayBringWorkersDownStaysWhereItIs) {
  Groups groups(2);
  const uint64_t id = *groups.router->generate(request(1, 4000), groups.now());
  for (int crash = 0; crash < 2; crash++) {
    groups.run_for(kSecond / 10);
    groups.kill(0);
    if (crash == 0) groups.start(0);
    if (crash == 0) groups.run_until([&] { return groups.at(0).broker().ready(); });
  }
  groups.run_for(3 * Router::kPatience);
  EXPECT_EQ(groups.router->group_of(id), 0u) << "it must run alone, and the other group has work";
  groups.start(0);
  groups.run_for(kSecond / 10);
  const uint64_t next = *groups.router->generate(request(2), groups.now());
  EXPECT_EQ(groups.router->group_of(next), 1u) << "where nobody runs alone";
  groups.kill(0);
  groups.run_until([&] { return groups.all_answered(2); });
  EXPECT_EQ(groups.answers[id].finish, proto::Finish::kError);
  EXPECT_EQ(groups.answers[next].tokens, alone(2));
}

// Groups that come and go at random, requests that come and are cancelled at random: each request
// ends exactly once, with the tokens of an undisturbed run up to where it ended.
TEST(Router, AnswersAreThoseOfOneGroupWhateverHappens) {
  std::map<int32_t, std::vector<int32_t>> expected;
  for (int32_t seed = 0; seed < 8; seed++) expected[seed] = alone(seed, 300);
  int moved = 0;
  for (unsigned run = 0; run < 30; run++) {
    SCOPED_TRACE(base::cat("run ", run));
    std::mt19937 random(run);
    const auto chance = [&](unsigned of) { return random() % of == 0; };
    Groups groups(2 + run % 2);
    std::map<uint64_t, std::pair<int32_t, size_t>> asked;  // seed and first group
    for (int event = 0; event < 60; event++) {
      const size_t group = random() % groups.count();
      if (chance(3)) {
        const auto seed = static_cast<int32_t>(random() % 8);
        const auto id = groups.router->generate(request(seed, 300), groups.now());
        ASSERT_EQ(id.ok(), groups.router->ready());
        if (id.ok()) asked[*id] = {seed, *groups.router->group_of(*id)};
      } else if (chance(4)) {
        // Who is away stays away for a while.
        if (groups.is_alive(group)) {
          groups.kill(group);
        } else if (chance(2)) {
          groups.start(group);
        }
      } else if (chance(8) && !asked.empty()) {
        groups.router->cancel(asked.begin()->first, groups.now());
      }
      groups.run_for(static_cast<base::TimeNs>(random() % 1000) * kSecond / 1000);
      for (const auto& [id, own] : asked) {
        const auto now_in = groups.router->group_of(id);
        moved += now_in && *now_in != own.second;
      }
    }
    for (size_t group = 0; group < groups.count(); group++)
      if (!groups.is_alive(group)) groups.start(group);
    groups.run_until([&] { return groups.all_answered(asked.size()); });
    for (const auto& [id, own] : asked) {
      const Answer& answer = groups.answers[id];
      const std::vector<int32_t>& whole = expected[own.first];
      ASSERT_LE(answer.tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
      if (answer.finish == proto::Finish::kLength) {
        EXPECT_EQ(answer.tokens, whole);
      }
      EXPECT_FALSE(groups.router->group_of(id));
    }
    for (size_t group = 0; group < groups.count(); group++)
      EXPECT_EQ(groups.at(group).broker().live_requests(), 0);
  }
  EXPECT_GT(moved, 20) << "the runs never did what they are for";
}

}  // namespace
}  // namespace broker
