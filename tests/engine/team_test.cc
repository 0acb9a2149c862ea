// How work is dealt out to threads, and who of them takes part.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "engine/roster.h"
#include "engine/team.h"
#include "engine/work_split.h"
#include "tests/engine/golden.h"
#include "tests/engine/local_ranks.h"

namespace engine {
namespace {

// Dispatches one after the other without a wait between them, of all sizes: each item goes to
// exactly one thread.
TEST(WorkSplit, EveryItemOnce) {
  constexpr int kDispatches = 3000;
  for (const int threads : {1, 2, 3, 5, 9}) {
    auto team = ThreadTeam::start(std::vector<int>(static_cast<size_t>(threads), -1));
    ASSERT_TRUE(team.ok());
    WorkSplit split(threads);
    std::vector<std::vector<std::atomic<int>>> taken;
    std::mt19937 random(7);
    for (int d = 0; d < kDispatches; d++) taken.emplace_back(random() % (d % 10 == 0 ? 600 : 20));
    (*team)->run([&](int thread) {
      for (size_t d = 0; d < taken.size(); d++) {
        split.deal({.number = d + 1,
                    .total = static_cast<int64_t>(taken[d].size()),
                    .threads = threads,
                    .thread = thread},
                   [&](plan::Range range) {
                     EXPECT_FALSE(range.empty());
                     for (int64_t i = range.begin; i < range.end; i++)
                       taken[d][static_cast<size_t>(i)]++;
                   });
      }
    });
    for (size_t d = 0; d < taken.size(); d++)
      for (size_t i = 0; i < taken[d].size(); i++)
        ASSERT_EQ(taken[d][i], 1) << threads << " threads, dispatch " << d << ", item " << i;
  }
}

// A thread that has not come yet loses its items to the one that has.
TEST(WorkSplit, TakesWhatANeighbourHasNotBegun) {
  WorkSplit split(2);
  int64_t items = 0;
  const auto count = [&](plan::Range range) { items += range.size(); };
  split.deal({.number = 1, .total = 100, .threads = 2, .thread = 0}, count);
  EXPECT_EQ(items, 100);
  split.deal({.number = 1, .total = 100, .threads = 2, .thread = 1}, count);
  EXPECT_EQ(items, 100);
  split.deal({.number = 2, .total = 7, .threads = 2, .thread = 1}, count);
  EXPECT_EQ(items, 107);
}

std::vector<int> members(const Roster& roster) {
  return {roster.members().begin(), roster.members().end()};
}

constexpr uint64_t kMillisecond = 1'000'000;

/// Steps of 10 ms in which thread t waits for its CPU for a share of the time.
class Steps {
 public:
  Steps(Roster& roster, size_t threads) : roster_(roster), delay_(threads) {}
  void run(int steps, const std::vector<double>& shares) {
    for (int step = 0; step < steps; step++) run_one(shares, roster_.members().size());
  }
  /// One step of the first `count` members.
  void run_one(const std::vector<double>& shares, size_t count) {
    for (const int t : roster_.members().first(count))
      delay_[static_cast<size_t>(t)] +=
          static_cast<uint64_t>(shares[static_cast<size_t>(t)] * 10 * kMillisecond);
    if (roster_.on_step(10 * kMillisecond, count)) roster_.judge(delay_);
  }

 private:
  Roster& roster_;
  std::vector<uint64_t> delay_;
};

TEST(Roster, LeavesOutACrowdedThreadAndTriesItAgain) {
  Roster roster(std::vector<int>{0, 1}, 2);
  Steps steps(roster, 2);
  steps.run(20, {0, 0.1});
  EXPECT_EQ(members(roster), (std::vector<int>{0, 1}));
  steps.run(5, {0, 0.5});
  EXPECT_EQ(members(roster), (std::vector<int>{0}));
  // The neighbour goes: after at most four seconds of steps the thread is back, and stays.
  steps.run(420, {0, 0});
  EXPECT_EQ(members(roster), (std::vector<int>{0, 1}));
}

TEST(Roster, SeldomTriesWhileTheNeighbourStays) {
  Roster roster(std::vector<int>{0, 1}, 2);
  Steps steps(roster, 2);
  int with_both = 0;
  for (int step = 0; step < 2000; step++) {
    steps.run(1, {0.6, 0});
    with_both += roster.members().size() == 2;
  }
  EXPECT_EQ(members(roster), (std::vector<int>{1}));
  EXPECT_LT(with_both, 60);
  EXPECT_GT(with_both, 5);
}

TEST(Roster, KeepsAllWhereLeavingOutWouldCostMore) {
  Roster roster(std::vector<int>{0, 1}, 2);
  Steps steps(roster, 2);
  steps.run(50, {0.6, 0.6});  // nobody's place is better
  EXPECT_EQ(members(roster), (std::vector<int>{0, 1}));
  Roster four(std::vector<int>{0, 1, 2, 3}, 4);
  Steps more(four, 4);
  more.run(50, {0.5, 0.5, 0.5, 0});  // one alone is slower than four at half speed
  EXPECT_EQ(four.members().size(), 4u);
  more.run(50, {0, 0, 0.5, 0});
  EXPECT_EQ(members(four), (std::vector<int>{0, 1, 3}));
}

// A thread that sleeps while others generate is as crowded as it is while it computes prompts.
TEST(Roster, JudgesAThreadByTheStepsThatItTookPartIn) {
  Roster roster(std::vector<int>{0, 1}, 2);
  Steps steps(roster, 2);
  for (int step = 0; step < 30 && roster.members().size() == 2; step++)
    steps.run_one({0, 0.5}, step % 3 == 0 ? 2 : 1);
  EXPECT_EQ(members(roster), (std::vector<int>{0}));
  Roster quiet(std::vector<int>{0, 1}, 2);
  Steps more(quiet, 2);
  for (int step = 0; step < 300; step++) {
    more.run_one({0, 0.1}, step % 3 == 0 ? 2 : 1);
    ASSERT_EQ(quiet.members().size(), 2u) << "step " << step;
  }
}

TEST(Roster, ThreadsThatShareACpuStayOutForGood) {
  EXPECT_EQ(members(Roster(std::vector<int>{0, 1, 0, 1}, 2)), (std::vector<int>{0, 1}));
  EXPECT_EQ(members(Roster(std::vector<int>{-1, -1, -1}, 2)), (std::vector<int>{0, 1}));
  EXPECT_EQ(members(Roster(std::vector<int>{3}, 1)), (std::vector<int>{0}));
}

TEST(Team, RunsOnlyTheMembers) {
  auto team = ThreadTeam::start({-1, -1, -1});
  ASSERT_TRUE(team.ok());
  std::vector<std::atomic<int>> counts(3);
  const std::vector<std::vector<int>> groups = {{0, 1, 2}, {1}, {0, 2}, {2}, {0}};
  std::vector<int> expected(3);
  for (size_t round = 0; round < 3000; round++) {
    const std::vector<int>& group = groups[round % groups.size()];
    for (const int t : group) expected[static_cast<size_t>(t)]++;
    (*team)->run([&](int t) { counts[static_cast<size_t>(t)]++; }, group);
    for (size_t t = 0; t < 3; t++) ASSERT_EQ(counts[t].load(), expected[t]) << "round " << round;
  }
}

/// Calls `check` for models with experts and a latent, with 60 tokens and what one thread alone
/// makes of them.
void for_models(const std::function<void(const model::Model&, const std::vector<int32_t>&,
                                         const Logits&)>& check) {
  for (const char* name : {"qwen3moe-q4_k", "olmoe-f32", "deepseek2-v3-mla-f16"}) {
    SCOPED_TRACE(name);
    const GoldenCase one = golden_case(name);
    auto model = model::load_model(one.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    auto alone = LocalRanks::start(*model, {.ranks = 1, .threads = 1});
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    std::vector<int32_t> tokens(60);
    std::iota(tokens.begin(), tokens.end(), 1);
    const auto expected = (*alone)->forward(tokens, 1);
    ASSERT_TRUE(expected.ok());
    check(*model, tokens, *expected);
  }
}

// Threads come and go between steps, the first one too: the logits stay the same bits.
TEST(Team, WhoComputesChangesNoBit) {
  for_models(
      [](const model::Model& model, const std::vector<int32_t>& tokens, const Logits& expected) {
        for (const int ranks : {1, 2}) {
          // Each look finds another thread without a CPU for all of the time.
          LocalRanksOptions options{.ranks = ranks, .threads = 3};
          options.run_delay = [looks = 0, delay = std::vector<uint64_t>(3)](int t) mutable {
            if (t == 0) looks++;
            if (t == looks % 3) delay[static_cast<size_t>(t)] += 1'000'000'000'000;
            return delay[static_cast<size_t>(t)];
          };
          options.roster = {.window_ns = 1, .retry_min_ns = 1, .retry_max_ns = 1};
          auto changing = LocalRanks::start(model, options);
          ASSERT_TRUE(changing.ok()) << changing.error().message;
          const auto logits = (*changing)->forward(tokens, 1);
          ASSERT_TRUE(logits.ok());
          EXPECT_EQ(expected.positions, logits->positions) << ranks << " ranks";
        }
      });
}

// A prompt by three threads, what follows it by fewer, a prompt again: the same bits.
TEST(Team, DecodingWithFewerThreadsChangesNoBit) {
  for_models(
      [](const model::Model& model, const std::vector<int32_t>& tokens, const Logits& expected) {
        for (const auto& [ranks, decode_threads] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 5}}) {
          auto fewer = LocalRanks::start(
              model, {.ranks = ranks, .threads = 3, .decode_threads = decode_threads});
          ASSERT_TRUE(fewer.ok()) << fewer.error().message;
          const auto all = static_cast<int>((*fewer)->leader().members().size());
          std::vector<std::vector<float>> positions;
          for (const auto& [begin, end, chunk] :
               {std::array{0, 20, 0}, {20, 30, 1}, {30, 45, 15}, {45, 60, 1}}) {
            const auto part =
                (*fewer)->forward({tokens.begin() + begin, tokens.begin() + end}, chunk, 0, begin);
            ASSERT_TRUE(part.ok()) << part.error().message;
            positions.insert(positions.end(), part->positions.begin(), part->positions.end());
            EXPECT_EQ((*fewer)->leader().stats().threads,
                      chunk == 1 ? std::min(all, decode_threads) : all);
          }
          EXPECT_EQ(expected.positions, positions) << ranks << " ranks, " << decode_threads;
        }
      });
}

}  // namespace
}  // namespace engine
