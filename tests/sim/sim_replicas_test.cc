// Two groups behind a router, under faults, from seeds: a group that is lost takes no answer with
// it, and no answer comes twice.
//
//   NUMOE_SEED=17 build/bin/sim_replicas_test    that seed only
//   NUMOE_FULL=1 build/bin/sim_replicas_test     2,000 seeds
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "broker/router.h"
#include "tests/sim/cluster.h"

namespace sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 10, kSeedsFull = 200;
#else
constexpr uint64_t kSeeds = 60, kSeedsFull = 2000;
#endif

constexpr size_t kGroups = 2;
constexpr base::TimeNs kRouterTick = 50 * kMs;
constexpr base::TimeNs kQuietWithin = 180 * kSecond;
constexpr uint64_t kCrashesOfTheGuilty = 3;  // before that no request ends with its group

/// What goes wrong between router and clients in a test of this test.
enum class Bug { kNone, kIdsOfTheGroup, kEndsTwice, kTokenLost, kGivesUp };

/// What both groups have in common: the model and its clients.
Scenario draw_replicas(uint64_t seed) {
  Scenario s = draw_scenario(seed);
  std::erase_if(s.faults, [](Fault fault) {
    return fault == Fault::kBrokerCrash || fault == Fault::kTimeJump;
  });
  s.faults.push_back(Fault::kWorkerCrash);
  s.chaos_end = 15 * kSecond;
  s.broker.replay = true;
  s.broker.requests_max = 256;
  s.leader.requests_max = 256;
  s.adopts = s.ends_abruptly = false;
  s.killers = s.load_fails = 0;
  s.queue_max = 20'000;
  s.runner.poison = -1;
  s.runner.kv_block_count = std::max(s.runner.kv_block_count, 11);
  // Some come back while their requests still wait for them, some do not. Ranks give each other up
  // later than that.
  s.restart_max = seed % 2 == 0 ? kSecond : 8 * kSecond;
  s.join_max = 10 * kSecond;
  s.cancelled = 0.2;
  return s;
}

/// Of one group, with faults of its own.
Scenario of_group(Scenario scenario, uint64_t group) {
  scenario.seed = scenario.seed * kGroups + group + 1'000'000;
  return scenario;
}

struct Sums {
  uint64_t finished = 0, cancelled = 0, broken = 0, refused = 0, tokens = 0, lost = 0, moved = 0;
};

class Replicas {
 public:
  Replicas(uint64_t seed, Bug bug)
      : bug_(bug),
        scenario_(draw_replicas(seed)),
        random_(seed, Stream::kClients),
        front_(scenario_, Checker::Sees::kRequests) {
    for (uint64_t g = 0; g < kGroups; g++) groups_.push_back(std::make_unique<Group>(*this, g));
    std::vector<broker::Broker*> brokers;
    for (const auto& group : groups_) brokers.push_back(group->cluster.broker());
    router_ = std::make_unique<broker::Router>(std::move(brokers));
  }

  std::optional<std::string> run() {
    chaos();
    for (const auto& group : groups_) group->cluster.heal(0);
    settle("two groups do not recover");
    lose_a_group();
    for (const auto& group : groups_) {
      group->checker.on_shut_down();
      group->cluster.shut_down();
    }
    take_events();
    const bool ended = run_until(
        [&] {
          return std::ranges::all_of(groups_, [](const auto& g) { return g->cluster.all_ended(); });
        },
        clock_.now() + kQuietWithin);
    if (!ended) fail("a shutdown does not reach every worker");
    return failure();
  }

  Sums sums() const {
    Sums sums{.finished = front_.counts.finished,
              .cancelled = front_.counts.cancelled,
              .broken = front_.counts.broken,
              .refused = front_.counts.refused,
              .tokens = front_.counts.tokens,
              .lost = losses(),
              .moved = moved_};
    return sums;
  }
  std::string trace() const { return trace_.text(); }

 private:
  struct Group {
    Group(Replicas& all, uint64_t number)
        : scenario(of_group(all.scenario_, number)),
          checker(scenario, Checker::Sees::kBroker),
          world{scenario, all.clock_, all.trace_, checker, plant},
          cluster(world) {
      // What clients are told goes over the router first.
      plant.events = [this](std::vector<broker::Event>& told) {
        events.insert(events.end(), told.begin(), told.end());
        std::erase_if(told, [](const broker::Event& event) {
          return std::holds_alternative<broker::TokenEvent>(event);
        });
      };
      checker.on_crash_to_come();
    }

    const Scenario scenario;
    Plant plant;
    Checker checker;
    const World world;
    Cluster cluster;
    std::vector<broker::Event> events;
  };

  void fail(std::string sentence) { front_.fail(std::move(sentence)); }
  std::optional<std::string> failure() const {
    for (const auto& group : groups_)
      if (group->checker.failure()) return group->checker.failure();
    return front_.failure();
  }
  uint64_t losses() const {
    uint64_t sum = 0;
    for (const auto& group : groups_) sum += group->checker.counts.groups_lost;
    return sum;
  }

  bool run_until(const std::function<bool()>& done, base::TimeNs deadline) {
    while (!done()) {
      base::TimeNs next = tick_at_;
      for (const auto& group : groups_) next = std::min(next, group->cluster.next_event());
      if (next > deadline || failure()) return false;
      if (next > clock_.now()) clock_.advance(next - clock_.now());
      for (const auto& group : groups_) group->cluster.run_due();
      take_events();
      if (tick_at_ > clock_.now()) continue;
      tick_at_ = clock_.now() + kRouterTick;
      router_->on_tick(clock_.now());
      flush();
      count_moves();
    }
    return true;
  }

  void flush() {
    for (const auto& group : groups_) group->cluster.flush_broker();
    take_events();
  }

  void take_events() {
    for (size_t g = 0; g < kGroups; g++)
      for (broker::Event& event : std::exchange(groups_[g]->events, {})) tell(g, event);
    int live = 0;
    for (const auto& group : groups_) live += group->cluster.broker()->live_requests();
    front_.expect(static_cast<size_t>(live) == front_.open_requests(),
                  "the groups have other requests than their clients");
  }

  void tell(size_t g, broker::Event& event) {
    if (bug_ != Bug::kIdsOfTheGroup) router_->on_event(g, event);
    auto* token = std::get_if<broker::TokenEvent>(&event);
    if (token == nullptr) return;
    if (bug_ == Bug::kTokenLost && token->chunk.index == 3) token->chunk.tokens.clear();
    if (bug_ == Bug::kGivesUp && token->chunk.index == 3) {
      token->chunk.finish = proto::Finish::kError;
      token->chunk.error = {base::Code::kPeerLost, "the workers died"};
    }
    const bool ends = token->chunk.finish != proto::Finish::kNone;
    const broker::Broker& broker = *groups_[g]->cluster.broker();
    front_.on_event(event, broker);
    if (ends && bug_ == Bug::kEndsTwice) front_.on_event(event, broker);
    if (token->chunk.finish == proto::Finish::kError)
      front_.expect(losses() >= losses_before_[token->chunk.request_id] + kCrashesOfTheGuilty,
                    "a request ended with an error before groups were lost three times");
    if (ends) groups_of_.erase(token->chunk.request_id);
    front_.expect(!ends || !router_->group_of(token->chunk.request_id),
                  "the router knows a request that has ended");
  }

  void count_moves() {
    for (auto& [id, known] : groups_of_) {
      const auto group = router_->group_of(id);
      front_.expect(group.has_value(), "the router has lost a request");
      if (!group || *group == known) continue;
      moved_++;
      known = *group;
    }
  }

  void submit(int64_t max_tokens) {
    proto::GenerateRequest request;
    request.prompt.resize(static_cast<size_t>(random_.between(1, 30)));
    for (int32_t& token : request.prompt) token = static_cast<int32_t>(random_.below(90));
    request.max_tokens = max_tokens;
    request.sampling.temperature = random_.chance(0.3) ? 0.0f : 0.9f;
    request.sampling.seed = random_.bits();
    const auto id = router_->generate(request, clock_.now());
    if (!id.ok()) {
      front_.counts.refused++;
      front_.expect(id.error().code == base::Code::kUnavailable && !router_->ready(),
                    "a request was refused although a group is ready");
      return;
    }
    front_.on_accepted(*id, std::move(request));
    losses_before_[*id] = losses();
    groups_of_[*id] = router_->group_of(*id).value_or(0);
    flush();
  }

  void cancel_one() {
    if (groups_of_.empty()) return;
    auto chosen = groups_of_.begin();
    std::advance(chosen, static_cast<int64_t>(random_.below(groups_of_.size())));
    const uint64_t id = chosen->first;
    front_.on_cancel(id);
    router_->cancel(id, clock_.now());
    flush();
  }

  void chaos() {
    while (clock_.now() < scenario_.chaos_end && !failure()) {
      const base::TimeNs pause = random_.between(0, 2 * scenario_.fault_every / 4);
      run_until([] { return false; }, clock_.now() + pause);
      if (random_.chance(0.7)) submit(random_.between(1, 60));
      if (random_.chance(scenario_.cancelled)) cancel_one();
      if (!random_.chance(0.25)) continue;
      Cluster& cluster = groups_[random_.below(kGroups)]->cluster;
      cluster.inject(scenario_.faults[random_.below(scenario_.faults.size())], random_);
      flush();
    }
  }

  bool is_quiet() const {
    return front_.open_requests() == 0 &&
           std::ranges::all_of(groups_, [](const auto& group) { return group->cluster.quiet(); });
  }

  void settle(const char* otherwise) {
    if (run_until([&] { return is_quiet(); }, clock_.now() + kQuietWithin)) return;
    std::string sentence = base::cat(otherwise, ": ", front_.open_requests(), " requests are open");
    for (const auto& group : groups_)
      sentence += base::cat(", a group is ", group->cluster.broker()->ready() ? "" : "not ",
                            "ready and its leader keeps ", group->cluster.leader_requests());
    fail(std::move(sentence));
  }

  // All ranks of one group die at once, with answers under way in both, and nothing else happens:
  // every answer is finished, by whichever group.
  void lose_a_group() {
    if (failure()) return;
    const uint64_t finished = front_.counts.finished;
    constexpr uint64_t kAnswers = 6;
    for (uint64_t i = 0; i < kAnswers; i++) submit(50);
    run_until([] { return false; }, clock_.now() + random_.between(0, 300 * kMs));
    Cluster& lost = groups_[random_.below(kGroups)]->cluster;
    const uint64_t broken = front_.counts.broken;
    for (int rank = 0; rank < scenario_.ranks; rank++) lost.crash_worker(rank);
    flush();
    settle("answers do not outlive one of two groups");
    front_.expect(front_.counts.finished == finished + kAnswers && front_.counts.broken == broken,
                  "an answer is lost with one of two groups");
  }

  const Bug bug_;
  const Scenario scenario_;
  base::ManualClock clock_;
  Trace trace_;
  Random random_;
  Checker front_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unique_ptr<broker::Router> router_;
  std::map<uint64_t, size_t> groups_of_;        // of open requests, as last looked at
  std::map<uint64_t, uint64_t> losses_before_;  // a request was sent
  base::TimeNs tick_at_ = 0;
  uint64_t moved_ = 0;
};

TEST(SimulatedReplicas, LoseNoAnswerAndGiveNoneTwice) {
  const char* only = std::getenv("NUMOE_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t count = only != nullptr                        ? 1
                         : std::getenv("NUMOE_FULL") != nullptr ? kSeedsFull
                                                                : kSeeds;
  Sums sum;
  int failed = 0;
  for (uint64_t seed = first; seed < first + count && failed < 3; seed++) {
    Replicas replicas(seed, Bug::kNone);
    if (const auto failure = replicas.run()) {
      failed++;
      ADD_FAILURE() << "seed " << seed << ": " << *failure << "\n  " << draw_replicas(seed).text()
                    << "\n  rerun: NUMOE_SEED=" << seed << " build/bin/sim_replicas_test\n"
                    << replicas.trace();
    }
    const Sums one = replicas.sums();
    sum.finished += one.finished;
    sum.cancelled += one.cancelled;
    sum.broken += one.broken;
    sum.refused += one.refused;
    sum.tokens += one.tokens;
    sum.lost += one.lost;
    sum.moved += one.moved;
  }
  std::cout << count << " seeds: " << sum.finished << " requests finished, " << sum.cancelled
            << " cancelled, " << sum.broken << " ended with an error, " << sum.refused
            << " refused, " << sum.tokens << " tokens; groups were lost " << sum.lost
            << " times, requests moved " << sum.moved << " times\n";
  if (only != nullptr || failed > 0) return;
  EXPECT_GT(sum.finished, 6 * count);
  EXPECT_GT(sum.cancelled, count / 4);
  EXPECT_GT(sum.lost, 2 * count);
  EXPECT_GT(sum.moved, count / 2);
  EXPECT_LT(sum.broken, sum.finished / 20) << "most answers outlive what happens";
}

TEST(SimulatedReplicas, BugsBetweenRouterAndClientsAreFound) {
  for (const Bug bug : {Bug::kIdsOfTheGroup, Bug::kEndsTwice, Bug::kTokenLost, Bug::kGivesUp}) {
    bool found = false;
    for (uint64_t seed = 1; seed <= 20 && !found; seed++)
      found = Replicas(seed, bug).run().has_value();
    EXPECT_TRUE(found) << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace sim
