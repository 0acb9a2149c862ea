// Generations that outlive their group: whole clusters for the tokens, messages made by hand for
// who is sent when.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>

#include "base/limits.h"
#include "tests/broker/alone.h"
#include "tests/broker/cluster_in_a_thread.h"

namespace broker {
namespace {

const base::Error kKilled{base::Code::kPeerLost, "worker 0 was killed"};

proto::GenerateRequest request(uint32_t seed, size_t length, int64_t max_tokens) {
  std::mt19937 random(seed);
  proto::GenerateRequest request{.prompt = std::vector<int32_t>(length), .max_tokens = max_tokens};
  for (int32_t& token : request.prompt) token = static_cast<int32_t>(random() % 90);
  request.sampling.seed = seed;
  // Each looks at tokens from before and after a crash.
  if (seed % 2 == 0) request.sampling.repeat_penalty = 1.3f;
  if (seed % 3 == 0) request.sampling.frequency_penalty = 0.5f;
  request.sampling.penalty_window = seed % 5 == 0 ? -1 : 24;
  if (seed % 7 == 0) request.sampling.temperature = 0;
  return request;
}

Answer solo(const proto::GenerateRequest& wanted) {
  ClusterInAThread cluster({.ranks = 1});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
  cluster.run_until_answered();
  return cluster.answers[id];
}

void expect_equal(const Answer& answer, const Answer& right, const std::string& where) {
  EXPECT_EQ(answer.tokens, right.tokens) << where;
  EXPECT_EQ(answer.finish, right.finish) << where;
  EXPECT_EQ(answer.usage.prompt_tokens, right.usage.prompt_tokens) << where;
  EXPECT_EQ(answer.usage.generated_tokens, right.usage.generated_tokens) << where;
}

/// A crash of rank `victim` that somebody notices, and a new start of all.
void crash(ClusterInAThread& cluster, int victim, int ranks) {
  const std::string name = cluster.name(victim);
  cluster.kill(victim);
  cluster.broker().on_peer_lost(name, kKilled);
  cluster.turn();
  for (int rank = 0; rank < ranks; rank++) {
    if (rank != victim) cluster.kill(rank);
    cluster.start(rank);
  }
}

TEST(Replay, AnswersAreThoseOfUndisturbedRuns) {
  for (uint32_t seed = 1; seed <= 14; seed++) {
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(seed % 3);
    ClusterInAThread cluster({.ranks = ranks, .broker = {.replay = true}});
    cluster.run_until_ready();
    std::map<uint64_t, proto::GenerateRequest> requests;
    for (uint32_t i = 0; i < 5; i++) {
      auto wanted = request(seed * 10 + i, 1 + random() % 150, 60 + random() % 100);
      if (i == 1) wanted.stop_tokens = {solo(wanted).tokens[40]};
      requests[*cluster.broker().generate(wanted, cluster.now())] = wanted;
    }
    for (int crashes = 0; crashes < 3; crashes++) {
      // Far enough apart that nobody is suspected.
      std::map<uint64_t, size_t> had;
      for (const auto& [id, wanted] : requests) had[id] = cluster.answers[id].tokens.size();
      cluster.run_until([&] {
        return std::all_of(requests.begin(), requests.end(), [&](const auto& entry) {
          const Answer& answer = cluster.answers[entry.first];
          return answer.finish != proto::Finish::kNone ||
                 answer.tokens.size() >= had[entry.first] + kClearedAfter;
        });
      });
      for (auto turns = random() % 10; turns > 0; turns--) cluster.turn();
      crash(cluster, static_cast<int>(random()) & 1 ? 0 : ranks - 1, ranks);
      cluster.run_until_ready();
    }
    cluster.run_until_answered();
    EXPECT_EQ(cluster.losses.size(), 3u);
    for (const auto& [id, wanted] : requests)
      expect_equal(cluster.answers[id], solo(wanted), base::cat("seed ", seed, " request ", id));
  }
}

TEST(Replay, ACrashAtAnyTokenIsNotToBeSeen) {
  proto::GenerateRequest wanted = request(6, 70, 30);
  const Answer right = solo(wanted);
  for (size_t when = 0; when < 30; when++) {
    ClusterInAThread cluster({.ranks = 2, .broker = {.replay = true}});
    cluster.run_until_ready();
    const uint64_t id = *cluster.broker().generate(wanted, cluster.now());
    cluster.run_until([&] { return cluster.answers[id].tokens.size() >= when; });
    const bool was_done = cluster.broker().live_requests() == 0;
    crash(cluster, static_cast<int>(when % 2), 2);
    EXPECT_EQ(cluster.broker().live_requests(), was_done ? 0 : 1);
    cluster.run_until_answered();
    expect_equal(cluster.answers[id], right, base::cat("after ", when, " tokens"));
  }
}

TEST(Replay, WhileThereIsNoGroupRequestsWaitAndNewOnesAreRefused) {
  ClusterInAThread cluster({.ranks = 2, .broker = {.replay = true}});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 10, 40), cluster.now());
  const uint64_t other = *cluster.broker().generate(request(2, 10, 3000), cluster.now());
  const uint64_t score = *cluster.broker().score(
      {.tokens = request(1, 100, 1).prompt, .want_last = true, .chunk = 1}, cluster.now());
  cluster.run_until([&] { return cluster.answers[other].tokens.size() > 5; });
  const std::string name = cluster.name(1);
  cluster.kill(1);
  cluster.broker().on_peer_lost(name, kKilled);
  EXPECT_EQ(cluster.broker().generate(request(1, 5, 5), 0).error().code, base::Code::kUnavailable);
  cluster.turn();
  EXPECT_EQ(cluster.answers[score].error.message, kKilled.message) << "a score does not go on";
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kNone);
  EXPECT_EQ(cluster.broker().live_requests(), 2);
  for (int turn = 0; turn < 500; turn++) cluster.turn();
  // A cancel needs no group.
  const size_t had = cluster.answers[other].tokens.size();
  cluster.broker().cancel(other, cluster.now());
  cluster.broker().cancel(other, cluster.now());
  EXPECT_EQ(cluster.broker().live_requests(), 1);
  cluster.turn();
  EXPECT_EQ(cluster.answers[other].finish, proto::Finish::kCancelled);
  EXPECT_EQ(cluster.answers[other].tokens.size(), had);
  EXPECT_EQ(cluster.answers[other].usage.generated_tokens, static_cast<int64_t>(had));
  // Giving up ends what waits.
  cluster.broker().end_all({base::Code::kNoSpace, "no memory"});
  cluster.turn();
  EXPECT_EQ(cluster.answers[id].error.message, "no memory");
  EXPECT_EQ(cluster.broker().live_requests(), 0);
}

TEST(Replay, ACancelThatTheLeaderDidNotAnswerEndsWithTheGroup) {
  ClusterInAThread cluster({.ranks = 1, .broker = {.replay = true}});
  cluster.run_until_ready();
  const uint64_t id = *cluster.broker().generate(request(1, 10, 3000), cluster.now());
  cluster.run_until([&] { return cluster.answers[id].tokens.size() > 5; });
  const std::string name = cluster.name(0);
  cluster.kill(0);
  cluster.broker().cancel(id, cluster.now());
  cluster.broker().on_peer_lost(name, kKilled);
  cluster.turn();
  EXPECT_EQ(cluster.answers[id].finish, proto::Finish::kCancelled);
}

/// A broker whose only worker, of many lives, is the test.
class Suspects : public testing::Test {
 protected:
  Suspects() { start(); }

  void start() {
    incarnation_++;
    say(proto::Hello{.numerics_version = base::kNumericsVersion, .model_fingerprint = "model"}, 0);
    say(proto::Ready{.vocabulary = 9, .context = 900, .columns_max = 9});
  }
  void say(proto::Body body) { say(std::move(body), broker.plan_epoch()); }
  void say(proto::Body body, uint64_t epoch) {
    broker.on_message(peer(), Alone::from("a", incarnation_, std::move(body), epoch), 0);
    for (Event& event : broker.take_events()) {
      const auto* token = std::get_if<TokenEvent>(&event);
      if (token == nullptr) continue;
      EXPECT_EQ(token->chunk.index, next_[token->chunk.request_id]++);
      if (token->chunk.finish == proto::Finish::kError)
        failed[token->chunk.request_id] = token->chunk.error.message;
    }
    for (const Outgoing& out : broker.take_outbox()) {
      auto parsed = proto::parse(out.message);
      if (auto* sent = std::get_if<proto::GenerateRequest>(&parsed->body)) {
        EXPECT_EQ(sent->first_index, next_[sent->request_id]);
        EXPECT_EQ(sent->generated.size(), tokens_[sent->request_id]);
        requests_sent.insert(sent->request_id);
      }
    }
  }
  void accept(uint64_t id) { say(proto::Accepted{id}); }
  void token(uint64_t id, proto::Finish finish = proto::Finish::kNone) {
    tokens_[id]++;
    say(proto::TokenChunk{.request_id = id, .index = next_[id], .tokens = {3}, .finish = finish});
  }
  void tokens(uint64_t id, uint64_t count) {
    while (count-- > 0) token(id);
  }
  uint64_t generate() {
    const uint64_t id = *broker.generate({.prompt = {1}}, 0);
    say(proto::LoadProgress{});  // collects
    return id;
  }
  /// All that were sent are accepted, and then the worker dies and comes again.
  void crash() {
    const std::set<uint64_t> running = std::exchange(requests_sent, {});
    for (const uint64_t id : running)
      if (!broker.tokens(id).empty()) accept(id);
    crash_at_once();
  }
  void crash_at_once() {
    requests_sent.clear();
    broker.on_peer_lost(peer(), {base::Code::kPeerLost, "killed by signal 11"});
    start();
  }
  std::string peer() const { return base::cat("a#", incarnation_); }

  Broker broker{{.rank_count = 1, .model_fingerprint = "model", .replay = true}};
  std::set<uint64_t> requests_sent;  // since the last crash
  std::map<uint64_t, std::string> failed;

 private:
  uint64_t incarnation_ = 0;
  std::map<uint64_t, uint64_t> next_, tokens_;
};

using Ids = std::set<uint64_t>;

TEST_F(Suspects, RunAloneAndOneAfterTheOther) {
  for (int i = 0; i < 3; i++) generate();
  EXPECT_EQ(requests_sent, (Ids{1, 2, 3}));
  crash();
  EXPECT_EQ(requests_sent, (Ids{1, 2, 3})) << "one crash says nothing";
  crash();
  EXPECT_EQ(requests_sent, (Ids{1}));
  // A new one waits too: it might be what ends the suspect.
  generate();
  accept(1);
  tokens(1, 15);
  EXPECT_EQ(requests_sent, (Ids{1}));
  token(1);
  EXPECT_EQ(requests_sent, (Ids{1, 2}));
  token(2, proto::Finish::kStop);
  EXPECT_EQ(requests_sent, (Ids{1, 2, 3})) << "one that has ended is none any more";
  tokens(3, 16);
  EXPECT_EQ(requests_sent, (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(failed.empty());
}

TEST_F(Suspects, TheThirdCrashEndsOneAndTheOthersGoOn) {
  for (int i = 0; i < 3; i++) generate();
  crash();
  crash();
  tokens(1, 16);
  EXPECT_EQ(requests_sent, (Ids{1, 2}));
  crash();  // number two is the one
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_NE(failed[2].find("under way in 3 crashes in a row"), std::string::npos) << failed[2];
  EXPECT_NE(failed[2].find("killed by signal 11"), std::string::npos);
  EXPECT_EQ(requests_sent, (Ids{3})) << "still suspected; number one has got on and waits";
  tokens(3, 16);
  EXPECT_EQ(requests_sent, (Ids{1, 3}));
  crash();
  EXPECT_EQ(requests_sent, (Ids{1})) << "no token in between; number three is at one again";
  tokens(1, 16);
  EXPECT_EQ(requests_sent, (Ids{1, 3}));
  EXPECT_EQ(failed.size(), 1u);
}

TEST_F(Suspects, TheLastWordsOfALeaderMakeNoDifference) {
  generate();
  for (int i = 0; i < 3; i++) crash_at_once();  // before it was accepted
  EXPECT_TRUE(failed.contains(1));
  EXPECT_EQ(broker.live_requests(), 0);
}

TEST_F(Suspects, WhoWasNotSentIsNotBlamed) {
  generate();
  crash_at_once();
  crash_at_once();
  generate();
  EXPECT_EQ(requests_sent, (Ids{1}));
  crash_at_once();
  EXPECT_EQ(failed.size(), 1u);
  EXPECT_TRUE(failed.contains(1));
  EXPECT_EQ(requests_sent, (Ids{2}));
}

TEST_F(Suspects, ACancelledSuspectLetsTheOthersGo) {
  generate();
  generate();
  crash();
  crash();
  EXPECT_EQ(requests_sent, (Ids{1}));
  broker.cancel(1, 0);
  say(proto::TokenChunk{.request_id = 1, .finish = proto::Finish::kCancelled});
  EXPECT_EQ(requests_sent, (Ids{1, 2}));
  // One that waits, too.
  crash();
  broker.cancel(2, 0);
  say(proto::LoadProgress{});
  EXPECT_EQ(broker.live_requests(), 0);
}

// Whichever of five requests end the workers whenever they run: exactly these fail, and all others
// come to their end within a bounded number of crashes.
TEST_F(Suspects, WhicheverArePoisonTheOthersAreServed) {
  for (uint64_t poison = 0; poison < 1u << 5; poison++) {
    failed.clear();
    crash_at_once();
    Ids open;
    const auto is_poison = [&](uint64_t id) { return (poison >> (id % 5) & 1) != 0; };
    for (int i = 0; i < 5; i++) open.insert(generate());
    int crashes = 0;
    for (int step = 0; !open.empty(); step++) {
      ASSERT_LT(step, 1000) << poison;
      std::optional<uint64_t> killer;
      for (const uint64_t id : Ids(requests_sent)) {
        if (!open.contains(id)) continue;
        accept(id);
        if (is_poison(id)) killer = id;
      }
      if (killer) {
        ASSERT_LE(++crashes, 20) << poison;
        crash_at_once();
      } else {
        for (const uint64_t id : Ids(requests_sent))
          if (open.contains(id)) tokens(id, 1);
      }
      std::erase_if(open, [&](uint64_t id) {
        if (broker.tokens(id).size() > 40) token(id, proto::Finish::kLength);
        return broker.tokens(id).empty();
      });
    }
    for (const auto& [id, why] : failed) EXPECT_TRUE(is_poison(id)) << poison << ": " << why;
    EXPECT_EQ(failed.size(), static_cast<size_t>(__builtin_popcountll(poison))) << poison;
  }
}

TEST_F(Suspects, NoRequestIsInMoreThanTenCrashes) {
  generate();
  for (int crashes = 1; crashes <= 10; crashes++) {
    EXPECT_TRUE(failed.empty()) << crashes;
    accept(1);
    tokens(1, 16);
    crash_at_once();
  }
  EXPECT_NE(failed[1].find("under way in 10 crashes"), std::string::npos) << failed[1];
}

}  // namespace
}  // namespace broker
