// What cpusets, numactl and quotas leave of a machine, and which ranks that gives.
#include <gtest/gtest.h>

#include "shm/topology.h"

namespace shm {
namespace {

using Cpus = std::vector<int>;

Topology synthetic(const std::string& text) {
  auto topology = read_whole_topology({.kind = TopologyKind::kSynthetic, .text = text});
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return topology.ok() ? *topology : Topology{};
}

/// Ranks as a server starts them on what is allowed.
Placement serve_on(const Topology& whole, const AllowedSets& allowed, double cpu_quota = 0) {
  auto placement = cpus_for_ranks(restrict_to(whole, allowed),
                                  {.ranks = 0, .reserve_cores = 1, .cpu_quota = cpu_quota});
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  return placement.ok() ? *placement : Placement{};
}

size_t threads_of(const Placement& placement) {
  size_t threads = 0;
  for (const RankPlacement& rank : placement.ranks) threads += rank.cpus.size();
  return threads;
}

bool remarks(const Placement& placement, const std::string& part) {
  for (const std::string& remark : placement.remarks)
    if (remark.find(part) != std::string::npos) return true;
  return false;
}

// Two sockets of 4 cores with 2 threads each: CPUs 0,1 are a core.
const char* const kTwoSockets = "package:2 [numa(memory=64GB)] core:4 pu:2";

TEST(Restriction, NothingSaidLeavesEverything) {
  const Topology whole = synthetic(kTwoSockets);
  const Topology all = restrict_to(whole, {});
  ASSERT_EQ(all.nodes.size(), 2u);
  EXPECT_EQ(all.nodes[1].cores.size(), 4u);
  EXPECT_EQ(all.nodes[1].cores[3].cpus, (Cpus{14, 15}));
  EXPECT_EQ(all.packages, 2);
  EXPECT_EQ(all.description, "2 packages, 2 NUMA nodes, 8 cores");
}

TEST(Restriction, SiblingsOfTwoCoresAreTwoThreads) {
  const Placement placement = serve_on(synthetic(kTwoSockets), {.cpus = Cpus{4, 5, 6, 7}});
  ASSERT_EQ(placement.ranks.size(), 1u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{4, 6}));
  EXPECT_EQ(placement.ranks[0].os_node, 0);
}

TEST(Restriction, OneSiblingOfFourCoresIsFourThreads) {
  const Placement placement = serve_on(synthetic(kTwoSockets), {.cpus = Cpus{1, 3, 8, 11}});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{1, 3}));
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{8, 11}));
  EXPECT_TRUE(placement.remarks.empty());
}

TEST(Restriction, UnevenNodesAreToldAndTheEmptyOneGetsNoRank) {
  const Topology whole = synthetic("package:3 [numa(memory=8GB)] core:4 pu:1");
  const Placement placement = serve_on(whole, {.cpus = Cpus{1, 2, 3, 6}});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{1, 2, 3}));
  EXPECT_EQ(placement.ranks[1].cpus, Cpus{6});
  EXPECT_EQ(placement.ranks[1].os_node, 1);
  EXPECT_EQ(placement.shares, (std::vector<double>{3, 1}));
  EXPECT_TRUE(remarks(placement, "3 on node 0, 1 on node 1"));
  EXPECT_TRUE(remarks(placement, "no rank on NUMA node 2"));
}

TEST(Restriction, TheBrokerSharesASingleCpuAndThatIsTold) {
  const Placement placement = serve_on(synthetic(kTwoSockets), {.cpus = Cpus{9}});
  ASSERT_EQ(placement.ranks.size(), 1u);
  EXPECT_EQ(placement.ranks[0].cpus, Cpus{9});
  EXPECT_EQ(placement.ranks[0].os_node, 1);
  EXPECT_TRUE(remarks(placement, "CPU 9 is all there is: the broker shares it"));
}

// As of `numactl -N 1,3 -m 1,3`: ranks count from 0, nodes keep the system's numbers.
TEST(Restriction, RanksSitOnTheNodesThatAreLeft) {
  const Topology whole = synthetic("package:4 [numa(memory=8GB)] core:2 pu:1");
  const Placement placement =
      serve_on(whole, {.cpus = Cpus{2, 3, 6, 7}, .nodes = std::vector<int>{1, 3}});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].os_node, 1);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{2, 3}));
  EXPECT_EQ(placement.ranks[1].os_node, 3);
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{6, 7}));
}

// cpuset.mems = 2 with all CPUs.
TEST(Restriction, MemoryOfOneNodeMeansItsCoresAlone) {
  const Topology whole = synthetic("package:4 [numa(memory=8GB)] core:2 pu:1");
  const Placement placement = serve_on(whole, {.nodes = std::vector<int>{2}});
  ASSERT_EQ(placement.ranks.size(), 1u);
  EXPECT_EQ(placement.ranks[0].os_node, 2);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{4, 5}));
}

// Of many two-socket servers: even CPUs are on node 0, odd ones on node 1.
TEST(Restriction, InterleavedCpuNumbers) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] core:3 pu:1(indexes=0,2,4,1,3,5)");
  const Placement placement = serve_on(whole, {.cpus = Cpus{1, 2, 3, 4}});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{2, 4}));
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{1, 3}));
}

/// Nodes in a row, each `hop` further from the next; node 3 is the last.
Topology row_of_nodes() {
  Topology whole = synthetic("package:4 [numa(memory=8GB)] core:1 pu:1");
  for (size_t i = 0; i < 4; ++i) {
    whole.nodes[i].distances.clear();
    for (size_t j = 0; j < 4; ++j)
      whole.nodes[i].distances.push_back(10 + 10 * (i > j ? i - j : j - i));
  }
  return whole;
}

// numactl --cpunodebind=0,3 --membind=1,2: nobody has both, so cores go to the nearest memory.
TEST(Restriction, CoresWithoutMemoryGoToTheNearest) {
  const Placement placement =
      serve_on(row_of_nodes(), {.cpus = Cpus{0, 3}, .nodes = std::vector<int>{1, 2}});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].os_node, 1);
  EXPECT_EQ(placement.ranks[0].cpus, Cpus{0});
  EXPECT_EQ(placement.ranks[1].os_node, 2);
  EXPECT_EQ(placement.ranks[1].cpus, Cpus{3});
}

TEST(Restriction, DistancesAreThoseOfTheNodesLeft) {
  const Topology left = restrict_to(row_of_nodes(), {.nodes = std::vector<int>{0, 3}});
  EXPECT_EQ(left.nodes[0].distances, (std::vector<uint64_t>{10, 40}));
  EXPECT_EQ(left.nodes[1].distances, (std::vector<uint64_t>{40, 10}));
}

// A socket whose memory slots are empty.
TEST(Restriction, CoresOfANodeWithoutMemoryWorkForTheNearest) {
  Topology whole = row_of_nodes();
  whole.nodes[3].memory_bytes = 0;
  const Placement placement = serve_on(whole, {});
  ASSERT_EQ(placement.ranks.size(), 3u);
  EXPECT_EQ(placement.ranks[2].os_node, 2);
  EXPECT_EQ(placement.ranks[2].cpus, (Cpus{2, 3}));
}

TEST(Restriction, CachesThatNoCoreHasAreForgotten) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] l3:2 core:2 pu:1");
  ASSERT_EQ(whole.last_cache_bytes.size(), 4u);
  const Topology left = restrict_to(whole, {.cpus = Cpus{2, 6}});
  EXPECT_EQ(left.last_cache_bytes.size(), 2u);
  EXPECT_EQ(left.nodes[0].cores[0].last_cache, 0);
  EXPECT_EQ(left.nodes[1].cores[0].last_cache, 1);
}

TEST(Restriction, NothingLeftIsAnErrorOfThePlacement) {
  for (const AllowedSets& none :
       {AllowedSets{.cpus = Cpus{99}}, AllowedSets{.nodes = std::vector<int>{9}}}) {
    const auto placement = cpus_for_ranks(restrict_to(synthetic(kTwoSockets), none), {.ranks = 0});
    ASSERT_FALSE(placement.ok());
    EXPECT_NE(placement.error().message.find("cpuset"), std::string::npos);
  }
}

TEST(Restriction, OnlySlowCoresAreBetterThanNone) {
  Topology topology;
  topology.nodes.push_back({.os_index = 0, .memory_bytes = 1, .cores = {}});
  topology.nodes[0].cores = {{0, false, {0}}, {0, true, {4}}, {0, true, {5}}};
  EXPECT_EQ(serve_on(topology, {.cpus = Cpus{4, 5}}).ranks[0].cpus, (Cpus{4, 5}));
  EXPECT_EQ(serve_on(topology, {}).ranks[0].cpus, Cpus{0});
}

// Quota and cpuset are two limits: the smaller counts, whatever the other says.
TEST(Quota, AllRanksTogetherStayBelowIt) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] core:8 pu:2");
  for (const double quota : {0.5, 1.0, 1.5, 2.0, 3.99, 4.0, 7.65, 12.0, 15.2, 64.0}) {
    const Placement placement = serve_on(whole, {}, quota);
    EXPECT_LE(static_cast<double>(threads_of(placement)), std::max(quota, 1.0)) << quota;
    EXPECT_EQ(placement.oversubscribed, quota < 1) << quota;
  }
  EXPECT_EQ(threads_of(serve_on(whole, {}, 7.65)), 7u);
  // Half a CPU is left to the broker where there are enough.
  EXPECT_EQ(threads_of(serve_on(whole, {}, 7)), 6u);
  EXPECT_EQ(threads_of(serve_on(whole, {}, 2)), 2u);
  EXPECT_EQ(threads_of(serve_on(whole, {.cpus = Cpus{0, 1, 2, 3, 16}}, 7.65)), 3u);
}

// One core less for the broker does not make nodes uneven: memory sets their pace.
TEST(Quota, SharesAreToldOnlyWhereRanksDifferMuch) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] core:4 pu:1");
  EXPECT_TRUE(serve_on(whole, {}).shares.empty());
  EXPECT_EQ(serve_on(whole, {.cpus = Cpus{0, 1, 4, 5, 6, 7}}).shares, (std::vector<double>{2, 4}));
  const auto crowded = cpus_for_ranks(whole, {.ranks = 3, .threads_per_rank = 4, .simulate = true});
  ASSERT_TRUE(crowded.ok());
  EXPECT_TRUE(crowded->shares.empty());
}

TEST(Quota, ASmallOneMeansFewerRanksAndIsTold) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] core:8 pu:1");
  const Placement placement = serve_on(whole, {}, 1.5);
  ASSERT_EQ(placement.ranks.size(), 1u);
  EXPECT_EQ(placement.ranks[0].cpus.size(), 1u);
  EXPECT_TRUE(remarks(placement, "only 1 of 2 NUMA nodes get a rank"));
  EXPECT_TRUE(remarks(placement, "1.5 CPUs of time: 1 of 7 compute threads"));
}

TEST(Quota, AskedForThreadsAboveItAreAWarning) {
  const Topology whole = synthetic("package:2 [numa(memory=8GB)] core:8 pu:1");
  const auto placement =
      cpus_for_ranks(whole, {.ranks = 2, .threads_per_rank = 4, .cpu_quota = 7.65});
  ASSERT_TRUE(placement.ok());
  EXPECT_EQ(threads_of(*placement), 8u);
  EXPECT_NE(placement->note.find("the cgroup grants 7.65 CPUs"), std::string::npos);
}

}  // namespace
}  // namespace shm
