#include "shm/probe_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace shm {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

Topology synthetic(const std::string& text) {
  auto topology = read_topology({.kind = TopologyKind::kSynthetic, .text = text});
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return topology.ok() ? *topology : Topology{};
}

struct Wish {
  bool huge = true;
  double quota = 0;
  ProbeOptions options = {};
};

ProbePlan plan_of(const Topology& topology, const Wish& wish = {}) {
  const std::vector<ObtainedPages> obtained(topology.nodes.size(), {true, wish.huge});
  auto plan = plan_probe(topology, obtained, wish.quota, wish.options);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? std::move(*plan) : ProbePlan{};
}

/// Thread counts of the reads of one node on one memory in one kind of pages.
std::vector<int> counts(const ProbePlan& plan, int reader, int memory, PageKind pages) {
  std::vector<int> threads;
  for (const BandwidthCase& one : plan.bandwidth)
    if (one.figure.traffic == Traffic::kRead && one.figure.reader_node == reader &&
        one.figure.memory_node == memory && one.figure.pages == pages)
      threads.push_back(one.figure.threads);
  return threads;
}

size_t count_lines(const ProbePlan& plan, Nearness nearness) {
  return static_cast<size_t>(
      std::count_if(plan.lines.begin(), plan.lines.end(),
                    [&](const LineFigure& line) { return line.nearness == nearness; }));
}

/// True of every plan: as many streams as threads, each CPU once a case, real nodes.
void check_streams(const Topology& topology, const ProbePlan& plan) {
  for (const BandwidthCase& one : plan.bandwidth) {
    EXPECT_EQ(one.streams.size(), static_cast<size_t>(one.figure.threads));
    std::set<int> cpus;
    for (const Stream& stream : one.streams) {
      EXPECT_TRUE(cpus.insert(stream.cpu).second) << "CPU " << stream.cpu << " twice";
      ASSERT_LT(stream.memory_node, topology.nodes.size());
      if (one.figure.reader_node == kAllNodes) continue;
      EXPECT_EQ(topology.nodes[stream.memory_node].os_index, one.figure.memory_node);
      for (const Node& node : topology.nodes)
        for (const Core& core : node.cores)
          if (std::count(core.cpus.begin(), core.cpus.end(), stream.cpu) > 0) {
            EXPECT_EQ(node.os_index, one.figure.reader_node) << "a core of another node";
          }
    }
  }
  for (const LineFigure& line : plan.lines) EXPECT_NE(line.cpu_a, line.cpu_b);
}

using Ints = std::vector<int>;

TEST(ThreadCounts, GrowToAll) {
  EXPECT_EQ(thread_counts(1), Ints{1});
  EXPECT_EQ(thread_counts(2), (Ints{1, 2}));
  EXPECT_EQ(thread_counts(3), (Ints{1, 2, 3}));
  EXPECT_EQ(thread_counts(8), (Ints{1, 2, 3, 4, 6, 8}));
  EXPECT_EQ(thread_counts(20), (Ints{1, 2, 3, 4, 6, 8, 12, 16, 20}));
}

TEST(ProbePlan, TwoPackages) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] l3:1(size=32MB) core:4 pu:2");
  const ProbePlan plan = plan_of(topology);
  check_streams(topology, plan);
  // Physical cores, then all hardware threads.
  for (const int node : {0, 1})
    for (const PageKind pages : {PageKind::kSmall, PageKind::kHuge})
      EXPECT_EQ(counts(plan, node, node, pages), (Ints{1, 2, 3, 4, 8}));
  EXPECT_EQ(counts(plan, 0, 1, PageKind::kHuge), Ints{4});
  EXPECT_EQ(counts(plan, 1, 0, PageKind::kHuge), Ints{4});
  EXPECT_EQ(counts(plan, 0, 1, PageKind::kSmall), Ints{});
  EXPECT_EQ(counts(plan, kAllNodes, kAllNodes, PageKind::kHuge), Ints{8});
  EXPECT_EQ(plan.latency.size(), 4u);
  EXPECT_EQ(count_lines(plan, Nearness::kSameCore), 2u);
  EXPECT_EQ(count_lines(plan, Nearness::kSameCache), 4u);
  EXPECT_EQ(count_lines(plan, Nearness::kSameNode), 0u);
  EXPECT_EQ(count_lines(plan, Nearness::kSamePackage), 0u);
  EXPECT_EQ(count_lines(plan, Nearness::kOtherPackage), 1u);
  // The physical cores come first.
  for (const BandwidthCase& one : plan.bandwidth)
    if (one.figure.threads == 4 && one.figure.reader_node == 1) {
      for (const Stream& stream : one.streams) EXPECT_EQ(stream.cpu % 2, 0);
    }
  ASSERT_EQ(plan.placement.ranks.size(), 2u);
  EXPECT_EQ(plan.placement.ranks[0].cpus.size(), 3u);  // one core is the broker's
  EXPECT_EQ(plan.placement.ranks[1].os_node, 1);
}

TEST(ProbePlan, SubNodesOfASocketAreNearerThanTheOtherSocket) {
  const Topology topology =
      synthetic("package:2 group:2 [numa(memory=64GB)] l3:2(size=16MB) core:3 pu:1");
  ASSERT_EQ(topology.nodes.size(), 4u);
  const ProbePlan plan = plan_of(topology);
  check_streams(topology, plan);
  EXPECT_EQ(count_lines(plan, Nearness::kSamePackage), 2u);
  EXPECT_EQ(count_lines(plan, Nearness::kOtherPackage), 4u);
  EXPECT_EQ(count_lines(plan, Nearness::kSameCache), 8u);
  EXPECT_EQ(count_lines(plan, Nearness::kSameNode), 8u);
  EXPECT_EQ(plan.latency.size(), 16u);
  for (int reader = 0; reader < 4; ++reader)
    for (int memory = 0; memory < 4; ++memory)
      EXPECT_FALSE(counts(plan, reader, memory, PageKind::kHuge).empty());
}

TEST(ProbePlan, ReadsMemoryOfANodeWithoutCores) {
  const Topology topology =
      synthetic("[numa(memory=512GB)] package:2 [numa(memory=64GB)] core:2 pu:1");
  ASSERT_EQ(topology.nodes.size(), 3u);
  size_t far = 0;
  while (!topology.nodes[far].cores.empty()) ++far;
  const int os_far = topology.nodes[far].os_index;
  const ProbePlan plan = plan_of(topology);
  check_streams(topology, plan);
  EXPECT_EQ(plan.latency.size(), 6u);  // 2 readers, 3 memories
  for (const Node& node : topology.nodes) {
    EXPECT_EQ(counts(plan, os_far, node.os_index, PageKind::kHuge), Ints{});
    if (!node.cores.empty()) {
      EXPECT_EQ(counts(plan, node.os_index, os_far, PageKind::kHuge), Ints{2});
    }
  }
  EXPECT_EQ(plan.placement.ranks.size(), 2u);
}

TEST(ProbePlan, UnevenNodesUseTheirOwnCores) {
  Topology topology = synthetic("package:2 [numa(memory=64GB)] core:4 pu:1");
  topology.nodes[1].cores.resize(1);
  const ProbePlan plan = plan_of(topology);
  check_streams(topology, plan);
  EXPECT_EQ(counts(plan, 0, 0, PageKind::kHuge), (Ints{1, 2, 3, 4}));
  EXPECT_EQ(counts(plan, 1, 1, PageKind::kHuge), Ints{1});
  EXPECT_EQ(counts(plan, 1, 0, PageKind::kHuge), Ints{1});
  EXPECT_EQ(counts(plan, kAllNodes, kAllNodes, PageKind::kSmall), Ints{5});
}

TEST(ProbePlan, OneNodeHasSimulatedRanks) {
  const Topology topology = synthetic("package:1 [numa(memory=64GB)] core:2 pu:1");
  const ProbePlan plan = plan_of(topology);
  check_streams(topology, plan);
  EXPECT_EQ(counts(plan, kAllNodes, kAllNodes, PageKind::kHuge), Ints{});
  ASSERT_EQ(plan.placement.ranks.size(), 2u);
  EXPECT_EQ(plan.placement.ranks[0].os_node, -1);
  // The threads of one rank, the group, and 256 bytes to 256 KiB.
  ASSERT_EQ(plan.exchanges.size(), 13u);
  EXPECT_FALSE(plan.exchanges[0].whole_group);
  EXPECT_EQ(plan.exchanges[0].figure.ranks, 1);
  EXPECT_EQ(plan.exchanges[1].figure.gather_bytes, 0u);
  EXPECT_EQ(plan.exchanges.front().figure.gather_bytes, 0u);
  EXPECT_EQ(plan.exchanges[2].figure.gather_bytes, 256u);
  EXPECT_EQ(plan.exchanges.back().figure.gather_bytes, 256u * 1024);
  for (const ExchangeCase& one : plan.exchanges) EXPECT_TRUE(one.figure.simulated);
}

TEST(ProbePlan, RanksAndThreadsAsAsked) {
  const Topology topology = synthetic("package:1 [numa(memory=64GB)] core:8 pu:1");
  const ProbePlan plan = plan_of(topology, {.options = {.ranks = 4, .threads_per_rank = 1}});
  EXPECT_EQ(plan.placement.ranks.size(), 4u);
  EXPECT_EQ(plan.exchanges.back().figure.ranks, 4);
  EXPECT_EQ(plan.exchanges.back().figure.threads, 1);
  const ProbePlan single = plan_of(topology, {.options = {.ranks = 1}});
  EXPECT_EQ(single.exchanges.front().figure.ranks, 1);
  EXPECT_TRUE(single.exchanges.front().whole_group);
  EXPECT_FALSE(single.exchanges.front().figure.simulated);
}

TEST(ProbePlan, PagesThatWereNotHadAreNotMeasured) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] core:2 pu:1");
  const ProbePlan plan = plan_of(topology, {.huge = false});
  EXPECT_EQ(counts(plan, 0, 0, PageKind::kHuge), Ints{});
  EXPECT_EQ(counts(plan, 0, 1, PageKind::kSmall), Ints{2});
  EXPECT_EQ(plan.latency.front().figure.pages, PageKind::kSmall);
}

TEST(ProbePlan, NodesMayDifferInTheirPages) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] core:2 pu:1");
  const auto plan = plan_probe(topology, {{true, true}, {true, false}}, 0, {});
  ASSERT_TRUE(plan.ok());
  check_streams(topology, *plan);
  EXPECT_EQ(counts(*plan, 0, 0, PageKind::kHuge), (Ints{1, 2}));
  EXPECT_EQ(counts(*plan, 1, 1, PageKind::kHuge), Ints{});
  EXPECT_EQ(counts(*plan, 0, 1, PageKind::kSmall), Ints{2});
  EXPECT_EQ(counts(*plan, 1, 0, PageKind::kHuge), Ints{2});
  EXPECT_EQ(counts(*plan, kAllNodes, kAllNodes, PageKind::kSmall), Ints{4});
  EXPECT_EQ(counts(*plan, kAllNodes, kAllNodes, PageKind::kHuge), Ints{});
}

TEST(ProbePlan, TakesFastCoresFirst) {
  Topology topology = synthetic("package:1 [numa(memory=64GB)] core:3 pu:2");
  topology.nodes[0].cores[0].efficient = true;
  EXPECT_EQ(cpus_of(topology.nodes[0]), (Ints{2, 4, 0, 3, 5, 1}));
}

TEST(ProbePlan, ObeysTheQuota) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] core:8 pu:2");
  const ProbePlan plan = plan_of(topology, {.quota = 3.5});
  check_streams(topology, plan);
  for (const BandwidthCase& one : plan.bandwidth) EXPECT_LE(one.figure.threads, 3);
  EXPECT_EQ(counts(plan, 0, 0, PageKind::kHuge), (Ints{1, 2, 3}));
  EXPECT_EQ(counts(plan, kAllNodes, kAllNodes, PageKind::kHuge), Ints{2});
}

TEST(ProbePlan, RefusesAMachineWithoutCores) {
  Topology topology;
  topology.nodes.push_back({.os_index = 0, .memory_bytes = 1, .cores = {}});
  EXPECT_FALSE(plan_probe(topology, {{true, true}}, 0, {}).ok());
}

TEST(ProbeMemoryPlan, TakesSeveralTimesTheCachesButLittleOfWhatIsFree) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] l3:4(size=64MB) core:2 pu:1");
  MachineFacts facts;
  facts.nodes.resize(2);
  facts.nodes[0].free_bytes = 60000 * kMib;
  facts.nodes[1].free_bytes = 3000 * kMib;
  const auto bytes = plan_memory(topology, facts, {});
  ASSERT_TRUE(bytes.ok());
  const uint64_t caches = 4 * topology.last_cache_bytes.front();
  EXPECT_GE((*bytes)[0], 3 * caches - 2 * kMib);
  EXPECT_LE((*bytes)[0], 3 * caches);
  EXPECT_EQ((*bytes)[1], 300 * kMib);
  facts.memory_limit_bytes = 2000 * kMib;
  EXPECT_EQ((*plan_memory(topology, facts, {}))[0], 100 * kMib);
}

TEST(ProbeMemoryPlan, RefusesMoreThanThereIs) {
  const Topology topology = synthetic("package:2 [numa(memory=64GB)] core:2 pu:1");
  MachineFacts facts;
  facts.nodes.resize(2);
  facts.nodes[0].free_bytes = facts.nodes[1].free_bytes = 1000 * kMib;
  EXPECT_TRUE(plan_memory(topology, facts, {.node_bytes = 200 * kMib}).ok());
  const auto refused = plan_memory(topology, facts, {.node_bytes = 400 * kMib});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::Code::kNoSpace);
  EXPECT_NE(refused.error().message.find("--mib 300"), std::string::npos)
      << refused.error().message;
}

TEST(ProbeMemoryPlan, LeavesOutNodesWithoutMemory) {
  Topology topology = synthetic("package:2 [numa(memory=64GB)] core:2 pu:1");
  topology.nodes[1].memory_bytes = 0;
  const auto bytes = plan_memory(topology, {}, {});
  ASSERT_TRUE(bytes.ok());
  EXPECT_GT((*bytes)[0], 0u);
  EXPECT_EQ((*bytes)[1], 0u);
}

}  // namespace
}  // namespace shm
