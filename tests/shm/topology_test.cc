#include "shm/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/cat.h"

namespace shm {
namespace {

Topology synthetic(const std::string& text) {
  auto topology = read_topology({.kind = TopologyKind::kSynthetic, .text = text});
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return topology.ok() ? *topology : Topology{};
}

Placement place(const Topology& topology, const PlacementOptions& options) {
  auto placement = cpus_for_ranks(topology, options);
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  return placement.ok() ? *placement : Placement{};
}

using Cpus = std::vector<int>;

TEST(Topology, TwoPackagesWithTwoThreadsPerCore) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] core:4 pu:2");
  EXPECT_EQ(topology.packages, 2);
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[1].os_index, 1);
  EXPECT_GT(topology.nodes[1].memory_bytes, uint64_t{50} << 30);
  ASSERT_EQ(topology.nodes[1].cores.size(), 4u);
  EXPECT_EQ(topology.nodes[1].cores[0].cpus, (Cpus{8, 9}));
  EXPECT_EQ(topology.nodes[1].cores[0].package, 1);
}

// As Linux numbers many two-socket servers: even CPUs and even nodes here, odd ones there.
TEST(Topology, InterleavedNumbersAreKept) {
  const Topology topology = synthetic("package:2 [numa(indexes=1,0)] core:2 pu:1(indexes=0,2,1,3)");
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].os_index, 1);  // logical 0 is OS node 1
  EXPECT_EQ(topology.nodes[0].cores[0].cpus, Cpus{0});
  EXPECT_EQ(topology.nodes[0].cores[1].cpus, Cpus{2});
  EXPECT_EQ(topology.nodes[1].cores[0].cpus, Cpus{1});
  const Placement placement = place(topology, {.ranks = 2});
  EXPECT_EQ(placement.ranks[0].os_node, 1);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{0, 2}));
  EXPECT_EQ(placement.ranks[1].os_node, 0);
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{1, 3}));
}

// A node of memory only spans the CPUs of others; the cores stay with their own nodes.
TEST(Topology, MemoryOnlyNodeHasNoCoresAndNoRank) {
  const Topology topology =
      synthetic("[numa(memory=512GB)] package:2 [numa(memory=64GB)] core:2 pu:1");
  ASSERT_EQ(topology.nodes.size(), 3u);
  size_t cores = 0, empty = 0;
  for (const Node& node : topology.nodes) {
    cores += node.cores.size();
    if (!node.cores.empty()) continue;
    ++empty;
    EXPECT_GT(node.memory_bytes, uint64_t{400} << 30);
  }
  EXPECT_EQ(cores, 4u);
  EXPECT_EQ(empty, 1u);
  EXPECT_EQ(place(topology, {.ranks = 2}).ranks.size(), 2u);
  EXPECT_FALSE(cpus_for_ranks(topology, {.ranks = 3}).ok());
}

// Two kinds of memory at one socket: one of them gets the cores, so no core is counted twice.
TEST(Topology, SecondMemoryOfASocketTakesNoCore) {
  const Topology topology = synthetic("package:2 [numa] [numa] core:3 pu:1");
  ASSERT_EQ(topology.nodes.size(), 4u);
  size_t with_cores = 0;
  for (const Node& node : topology.nodes) {
    EXPECT_TRUE(node.cores.empty() || node.cores.size() == 3);
    with_cores += !node.cores.empty();
    // The first of a socket's two, by OS index: that is the ordinary memory.
    EXPECT_EQ(node.cores.empty(), node.os_index % 2 == 1);
  }
  EXPECT_EQ(with_cores, 2u);
}

// By hwloc: two sockets of two fast cores and a slow one each.
TEST(Topology, XmlFileWithKindsOfCoresAndDistances) {
  const auto topology = read_topology(
      {.kind = TopologyKind::kXmlFile, .text = NUMOE_SOURCE_DIR "/tests/shm/machines/hybrid.xml"});
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  ASSERT_EQ(topology->nodes.size(), 2u);
  EXPECT_EQ(topology->nodes[0].memory_bytes, uint64_t{8} << 30);
  EXPECT_EQ(topology->nodes[0].distances, (std::vector<uint64_t>{10, 21}));
  EXPECT_EQ(topology->nodes[1].distances, (std::vector<uint64_t>{21, 10}));
  ASSERT_EQ(topology->nodes[1].cores.size(), 3u);
  EXPECT_FALSE(topology->nodes[1].cores[1].efficient);
  EXPECT_TRUE(topology->nodes[1].cores[2].efficient);
  EXPECT_EQ(place(*topology, {.ranks = 2}).ranks[1].cpus, (Cpus{3, 4}));
  EXPECT_EQ(place(*topology, {.ranks = 2, .efficient_cores = true}).ranks[1].cpus, (Cpus{3, 4, 5}));
}

TEST(Topology, MachineHasTheCpusThisProcessMayUse) {
  const auto topology = read_topology({});
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::set<int> cpus;
  for (const Node& node : topology->nodes) {
    for (const Core& core : node.cores) cpus.insert(core.cpus.begin(), core.cpus.end());
  }
  EXPECT_EQ(cpus.size(), static_cast<size_t>(CPU_COUNT(&allowed)));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &allowed)) << cpu;
}

TEST(Topology, AffinityIsObeyed) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  size_t last = 0;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) last = cpu;
  }
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto topology = read_topology({});
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_TRUE(topology.ok());
  const Placement placement = place(*topology, {.ranks = 1});
  EXPECT_EQ(placement.ranks[0].cpus, Cpus{static_cast<int>(last)});
}

TEST(Topology, NonsenseIsRefused) {
  for (const TopologySource& source : {TopologySource{TopologyKind::kSynthetic, "package:x"},
                                       TopologySource{TopologyKind::kXmlFile, "/nonexistent.xml"},
                                       TopologySource{TopologyKind::kXmlFile, "/etc/hostname"}}) {
    const auto topology = read_topology(source);
    ASSERT_FALSE(topology.ok()) << source.text;
    EXPECT_EQ(topology.error().code, base::Code::kInvalidArgument);
  }
}

TEST(Placement, OneThreadPerPhysicalCoreUnlessAsked) {
  const Topology topology = synthetic("package:1 [numa] core:3 pu:2");
  EXPECT_EQ(place(topology, {.ranks = 1}).ranks[0].cpus, (Cpus{0, 2, 4}));
  const Placement both = place(topology, {.ranks = 1, .second_threads = true});
  EXPECT_EQ(both.ranks[0].cpus, (Cpus{0, 2, 4, 1, 3, 5}));
  EXPECT_FALSE(both.oversubscribed);
}

TEST(Placement, SimulatedRanksSplitTheCoresOfANode) {
  const Topology topology = synthetic("package:1 [numa] core:8 pu:1");
  const Placement three = place(topology, {.ranks = 3, .simulate = true});
  EXPECT_EQ(three.ranks[0].cpus, (Cpus{0, 1}));
  EXPECT_EQ(three.ranks[1].cpus, (Cpus{2, 3, 4}));
  EXPECT_EQ(three.ranks[2].cpus, (Cpus{5, 6, 7}));
  for (const RankPlacement& rank : three.ranks) EXPECT_EQ(rank.os_node, -1);
  EXPECT_FALSE(three.oversubscribed);
  const Placement two = place(topology, {.ranks = 2, .threads_per_rank = 2, .simulate = true});
  EXPECT_EQ(two.ranks[0].cpus, (Cpus{0, 1}));
  EXPECT_EQ(two.ranks[1].cpus, (Cpus{4, 5}));
}

TEST(Placement, SimulatedRanksAreDealtToRealNodes) {
  const Topology topology = synthetic("package:2 [numa] core:2 pu:1");
  const Placement placement = place(topology, {.ranks = 3, .simulate = true});
  EXPECT_EQ(placement.ranks[0].cpus, Cpus{0});
  EXPECT_EQ(placement.ranks[1].cpus, Cpus{1});
  EXPECT_EQ(placement.ranks[2].cpus, (Cpus{2, 3}));
}

TEST(Placement, TooFewCoresWrapAroundAndSaySo) {
  const Topology topology = synthetic("package:1 [numa] core:2 pu:1");
  const Placement placement =
      place(topology, {.ranks = 4, .threads_per_rank = 2, .simulate = true});
  std::multiset<int> cpus;
  for (const RankPlacement& rank : placement.ranks) {
    ASSERT_EQ(rank.cpus.size(), 2u);
    cpus.insert(rank.cpus.begin(), rank.cpus.end());
  }
  EXPECT_EQ(cpus.count(0), 4u);
  EXPECT_EQ(cpus.count(1), 4u);
  EXPECT_TRUE(placement.oversubscribed);
  EXPECT_NE(placement.note.find("8 threads on 2 cores"), std::string::npos) << placement.note;
}

TEST(Placement, OneCoreIsLeftToTheBrokerWhereThereAreEnough) {
  const Topology big = synthetic("package:2 [numa] core:4 pu:1");
  const Placement placement = place(big, {.ranks = 2, .reserve_cores = 1});
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{1, 2, 3}));
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{4, 5, 6, 7}));
  const Topology small = synthetic("package:1 [numa] core:2 pu:1");
  EXPECT_EQ(place(small, {.ranks = 1, .reserve_cores = 1}).ranks[0].cpus, (Cpus{0, 1}));
}

TEST(Placement, EfficientCoresAreLeftOutUnlessAsked) {
  Topology topology;
  topology.nodes.push_back({.os_index = 0, .memory_bytes = 1, .cores = {}});
  topology.nodes[0].cores = {{0, false, {0, 1}}, {0, false, {2, 3}}, {0, true, {4}}};
  EXPECT_EQ(place(topology, {.ranks = 1}).ranks[0].cpus, (Cpus{0, 2}));
  EXPECT_EQ(place(topology, {.ranks = 1, .efficient_cores = true}).ranks[0].cpus, (Cpus{0, 2, 4}));
}

TEST(Placement, QuotaCutsTheDefaultAndIsToldOtherwise) {
  const Topology topology = synthetic("package:2 [numa] core:8 pu:1");
  const Placement cut = place(topology, {.ranks = 2, .cpu_quota = 5.5});
  EXPECT_EQ(cut.ranks[0].cpus, (Cpus{0, 1, 2}));
  EXPECT_EQ(cut.ranks[1].cpus, (Cpus{8, 9}));
  EXPECT_FALSE(cut.oversubscribed);
  const Placement told = place(topology, {.ranks = 2, .threads_per_rank = 4, .cpu_quota = 5.5});
  EXPECT_EQ(told.ranks[0].cpus.size(), 4u);
  EXPECT_TRUE(told.oversubscribed);
  EXPECT_NE(told.note.find("5.5 CPUs"), std::string::npos) << told.note;
}

TEST(Placement, NonsenseIsRefused) {
  const Topology topology = synthetic("package:1 [numa] core:2 pu:1");
  EXPECT_FALSE(cpus_for_ranks(topology, {.ranks = -1}).ok());
  EXPECT_FALSE(cpus_for_ranks(topology, {.ranks = 1, .threads_per_rank = -1}).ok());
  EXPECT_FALSE(cpus_for_ranks(topology, {.ranks = 2}).ok());
  EXPECT_FALSE(cpus_for_ranks(Topology{}, {.ranks = 1}).ok());
}

}  // namespace
}  // namespace shm
