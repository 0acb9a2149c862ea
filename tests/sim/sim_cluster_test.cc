// A whole cluster under faults, from seeds; then the same with bugs planted, which must be found.
//
//   NUMOE_SEED=17 build/bin/sim_cluster_test    that seed only
//   NUMOE_FULL=1 build/bin/sim_cluster_test     5,000 seeds
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "base/cat.h"
#include "tests/sim/simulation.h"

namespace sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 25, kSeedsFull = 500;
constexpr const char* kHow = " (fewer than 200 or 5,000, under a sanitizer)";
#else
constexpr uint64_t kSeeds = 200, kSeedsFull = 5000;
constexpr const char* kHow = "";
#endif

/// Tried for each planted bug, also under a sanitizer: most are found at once.
constexpr uint64_t kPlantSeeds = 200;

/// A CHECK ends the process; the seed is what its reader needs.
class SeedOnAbort {
 public:
  explicit SeedOnAbort(uint64_t seed) {
    current().store(seed);
    std::signal(SIGABRT, print);
  }
  ~SeedOnAbort() { std::signal(SIGABRT, SIG_DFL); }

 private:
  static std::atomic<uint64_t>& current() {
    static std::atomic<uint64_t> seed;
    return seed;
  }
  static void print(int) {
    std::fprintf(stderr, "rerun: NUMOE_SEED=%llu build/bin/sim_cluster_test\n",
                 static_cast<unsigned long long>(current().load()));
  }
};

Outcome simulate_seed(uint64_t seed) {
  const SeedOnAbort on_abort(seed);
  return simulate(draw_scenario(seed));
}

void report(uint64_t seed, const Outcome& outcome) {
  ADD_FAILURE() << "seed " << seed << ": " << *outcome.failure << "\n  "
                << draw_scenario(seed).text() << "\n  rerun: NUMOE_SEED=" << seed
                << " build/bin/sim_cluster_test\n  the last events (time, who, what, request, "
                   "chunk or number, epoch):\n"
                << outcome.trace;
}

void add(Counts& sum, const Counts& more) {
  sum.accepted += more.accepted;
  sum.refused += more.refused;
  sum.finished += more.finished;
  sum.cancelled += more.cancelled;
  sum.broken += more.broken;
  sum.orphaned += more.orphaned;
  sum.tokens += more.tokens;
  sum.groups_ready += more.groups_ready;
  sum.groups_lost += more.groups_lost;
  sum.stats += more.stats;
  sum.adopted += more.adopted;
  sum.replayed += more.replayed;
  sum.given_up += more.given_up;
  sum.alone += more.alone;
}

TEST(SimulatedCluster, KeepsItsPromisesUnderEverySeed) {
  const char* only = std::getenv("NUMOE_SEED");
  const bool full = std::getenv("NUMOE_FULL") != nullptr;
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t count = only != nullptr ? 1 : full ? kSeedsFull : kSeeds;
  Counts sum;
  uint64_t events = 0, failed = 0, run = 0;
  std::pair<uint64_t, uint64_t> most;  // events, and their seed
  for (uint64_t seed = first; seed < first + count && failed < 3; seed++) {
    const Outcome outcome = simulate_seed(seed);
    run++;
    most = std::max(most, {outcome.events, seed});
    add(sum, outcome.counts);
    events += outcome.events;
    if (!outcome.failure) continue;
    failed++;
    report(seed, outcome);
  }
  std::cout << run << " seeds" << kHow << ": " << sum.accepted << " requests (" << sum.finished
            << " finished, " << sum.cancelled << " cancelled, " << sum.broken
            << " ended with an error, " << sum.orphaned << " lost their broker), " << sum.refused
            << " refused, " << sum.tokens << " tokens; " << sum.groups_ready << " groups formed, "
            << sum.groups_lost << " were lost, " << sum.adopted << " taken over; " << sum.replayed
            << " times a request outlived its group, " << sum.given_up << " were given up, "
            << sum.alone << " times one was sent alone; " << events << " events, at most "
            << most.first << " (seed " << most.second << ")\n";
  if (only != nullptr || failed > 0) return;
  // A simulation in which nothing happens proves nothing.
  EXPECT_EQ(sum.accepted, sum.finished + sum.cancelled + sum.broken + sum.orphaned);
  EXPECT_GT(sum.finished, 5 * count);
  EXPECT_GT(sum.tokens, 200 * count);
  EXPECT_GT(sum.cancelled, count / 4);
  EXPECT_GT(sum.broken, count / 4);
  EXPECT_GT(sum.orphaned, count / 10);
  EXPECT_GT(sum.refused, count);
  EXPECT_GT(sum.groups_lost, count / 2);
  EXPECT_GT(sum.stats, count / 2);
  EXPECT_GT(sum.adopted, count / 4);
  EXPECT_GT(sum.replayed, count);
  EXPECT_GT(sum.given_up, count / 20);
  EXPECT_GT(sum.alone, count / 10);
}

TEST(SimulatedCluster, OneSeedIsOneRun) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    const Outcome first = simulate_seed(seed), second = simulate_seed(seed);
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_NE(first.hash, simulate_seed(seed + 1).hash) << "seed " << seed;
  }
}

TEST(SimulatedCluster, PlantedBugsAreFound) {
  for (size_t bug = 0; bug < planted_bugs(1).size(); bug++) {
    std::optional<std::string> found;
    uint64_t seed = 0;
    while (!found && seed < kPlantSeeds) {
      seed++;
      const SeedOnAbort on_abort(seed);
      found = simulate(draw_scenario(seed), planted_bugs(seed)[bug]).failure;
    }
    const std::string name = planted_bugs(1)[bug].name;
    if (found) {
      std::cout << name << ": seed " << seed << ": " << *found << "\n";
    } else {
      ADD_FAILURE() << name << ": not found in " << kPlantSeeds << " seeds";
    }
  }
}

}  // namespace
}  // namespace sim
