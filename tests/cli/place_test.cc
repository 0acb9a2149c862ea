// --cpus, --numa-nodes and --topology: what they choose, what they refuse, and what is drawn.
#include "cli/place.h"

#include <gtest/gtest.h>

#include "cli/topology_report.h"

namespace cli {
namespace {

using Cpus = std::vector<int>;

const char* const kFourNodes =
    "package:2 [numa(memory=8GB)] group:2 [numa(memory=8GB)] core:2 pu:2";
const char* const kTwoNodes = "package:2 [numa(memory=8GB)] l3:1 core:4 pu:2";

Machine machine(const std::string& source) {
  auto machine = read_machine(source);
  EXPECT_TRUE(machine.ok()) << machine.error().message;
  return machine.ok() ? *machine : Machine{};
}

shm::Placement placed(const Machine& machine, const PlaceOptions& options) {
  auto placement = place_ranks(machine, options);
  EXPECT_TRUE(placement.ok()) << placement.error().message;
  return placement.ok() ? *placement : shm::Placement{};
}

void refused(const Machine& machine, const PlaceOptions& options,
             std::initializer_list<const char*> parts) {
  const auto placement = place_ranks(machine, options);
  ASSERT_FALSE(placement.ok());
  EXPECT_EQ(placement.error().code, base::Code::kInvalidArgument);
  for (const char* part : parts)
    EXPECT_NE(placement.error().message.find(part), std::string::npos) << placement.error().message;
}

TEST(Place, OneRankANodeAndOneCoreForTheBroker) {
  const shm::Placement placement = placed(machine(kTwoNodes), {});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{2, 4, 6}));
  EXPECT_EQ(placement.ranks[1].cpus, (Cpus{8, 10, 12, 14}));
}

// Second threads and the first core are used only because they are named.
TEST(Place, NamedCpusAllCompute) {
  const shm::Placement placement = placed(machine(kTwoNodes), {.cpus = "0-3,8"});
  ASSERT_EQ(placement.ranks.size(), 2u);
  EXPECT_EQ(placement.ranks[0].cpus, (Cpus{0, 2, 1, 3}));
  EXPECT_EQ(placement.ranks[1].cpus, Cpus{8});
}

TEST(Place, NamedNodesOnly) {
  const shm::Placement placement = placed(machine(kTwoNodes), {.numa_nodes = "1"});
  ASSERT_EQ(placement.ranks.size(), 1u);
  EXPECT_EQ(placement.ranks[0].os_node, 1);
  const shm::Placement simulated = placed(machine(kTwoNodes), {.nodes = 2, .numa_nodes = "1"});
  ASSERT_EQ(simulated.ranks.size(), 2u);
  EXPECT_EQ(simulated.ranks[0].os_node, -1);
  EXPECT_GE(simulated.ranks[0].cpus.front(), 8);
}

TEST(Place, BadListsNameTheOptionAndWhatIsAllowed) {
  const Machine two = machine(kTwoNodes);
  refused(two, {.cpus = "0-"}, {"--cpus", "\"0-\""});
  refused(two, {.cpus = "14-17"}, {"--cpus", "16-17", "0-15"});
  refused(two, {.cpus = "0", .numa_nodes = "1"}, {"--cpus", "CPU 0", "8-15"});
  refused(two, {.numa_nodes = "all"}, {"--numa-nodes", "\"all\""});
  refused(two, {.numa_nodes = "0,2"}, {"--numa-nodes", "node 2", "0-1"});
  refused(two, {.numa_nodes = ""}, {"--numa-nodes"});
  Machine limited = two;
  limited.allowed.cpus = Cpus{2, 3};
  refused(limited, {.cpus = "1-2"}, {"--cpus", "CPU 1,", "2-3"});
  refused(limited, {.numa_nodes = "1"}, {"--numa-nodes", "node 1", "no CPU"});
}

TEST(Place, ThreadsAboveTheQuotaAreAWarning) {
  Machine two = machine(kTwoNodes);
  two.cpu_quota = 4;
  EXPECT_TRUE(placed(two, {}).note.empty());
  EXPECT_NE(placed(two, {.threads_per_node = 3}).note.find("grants 4 CPUs"), std::string::npos);
}

TEST(Place, OtherMachines) {
  const auto nonsense = read_machine("package:0");
  ASSERT_FALSE(nonsense.ok());
  EXPECT_NE(nonsense.error().message.find("--topology"), std::string::npos);
  EXPECT_EQ(machine(kFourNodes).whole.packages, 2);
  EXPECT_FALSE(machine(kFourNodes).allowed.cpus);
}

TEST(Place, AShrunkCpusetLeavesAWorkerWhatItMayUse) {
  EXPECT_EQ(still_allowed({0, 2, 4}, {}), (Cpus{0, 2, 4}));
  EXPECT_EQ(still_allowed({4, 2, 0}, {.cpus = Cpus{0, 1, 4}}), (Cpus{4, 0}));
  EXPECT_EQ(still_allowed({-1, 2}, {.cpus = Cpus{1}}), Cpus{-1});
  EXPECT_EQ(still_allowed({2, 3}, {.cpus = Cpus{1}}), Cpus{-1});
}

TEST(TopologyReport, DrawsWhatThereIsAndWhatIsForbidden) {
  Machine two = machine(kTwoNodes);
  two.allowed.cpus = Cpus{0, 1, 2, 8, 9};
  two.allowed.nodes = std::vector<int>{0};
  two.cpu_quota = 1.5;
  const std::string text = topology_text(two, placed(two, {}));
  for (const char* part :
       {"2 packages, 2 NUMA nodes, 8 cores", "package 1", "NUMA node 0, 7.5 GiB\n",
        "NUMA node 1, 7.5 GiB, its memory is not allowed here", "[2 (3)]", "[8 9]",
        "CPUs 0-2,8-9, memory of nodes 0, 1.5 CPUs of time", "rank 0 on NUMA node 0, 1 thread: 0\n",
        "1.5 CPUs of time: 1 of 2 compute threads"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Divide, GivesConsecutiveNodesToAReplica) {
  const Machine four = machine("package:4 [numa(memory=8GB)] core:4 pu:1");
  const auto groups = divide(placed(four, {}), 2);
  ASSERT_TRUE(groups.ok());
  ASSERT_EQ(groups->size(), 2u);
  ASSERT_EQ(groups->at(1).ranks.size(), 2u);
  EXPECT_EQ(groups->at(1).ranks[0].os_node, 2);
  EXPECT_EQ(groups->at(1).ranks[1].cpus, (Cpus{12, 13, 14, 15}));
  EXPECT_TRUE(groups->at(1).shares.empty());
  EXPECT_EQ(divide(placed(four, {}), 4)->at(3).ranks[0].os_node, 3);
}

TEST(Divide, ReplicasOnANodeShareItsCpus) {
  const Machine two = machine("package:2 [numa(memory=8GB)] core:5 pu:1");
  const shm::Placement whole = placed(two, {});
  const auto groups = divide(whole, 4);
  ASSERT_TRUE(groups.ok());
  std::vector<Cpus> cpus;
  for (const shm::Placement& group : *groups) {
    ASSERT_EQ(group.ranks.size(), 1u);
    cpus.push_back(group.ranks[0].cpus);
    EXPECT_FALSE(group.oversubscribed);
  }
  EXPECT_EQ(cpus, (std::vector<Cpus>{{1, 2}, {3, 4}, {5, 6}, {7, 8, 9}}));
  EXPECT_EQ(groups->at(1).ranks[0].os_node, 0);
  EXPECT_EQ(groups->at(2).ranks[0].os_node, 1);
  const auto many = divide(placed(two, {.nodes = 1, .threads_per_node = 1}), 3);
  ASSERT_EQ(many->size(), 3u);
  EXPECT_TRUE(many->at(2).oversubscribed) << "three threads on one CPU";
}

TEST(Divide, SharesAreThoseOfTheRanks) {
  shm::Placement whole;
  whole.ranks = {{0, {0}}, {1, {1, 2, 3}}, {2, {4}}, {3, {5}}};
  whole.shares = {1, 3, 1, 1};
  const auto groups = divide(whole, 2);
  EXPECT_EQ(groups->at(0).shares, (std::vector<double>{1, 3}));
  EXPECT_TRUE(groups->at(1).shares.empty()) << "equal ones";
}

TEST(Divide, RefusesWhatDoesNotDivide) {
  const Machine four = machine("package:4 [numa(memory=8GB)] core:4 pu:1");
  for (const int replicas : {3, 5, 6, 7}) {
    const auto groups = divide(placed(four, {}), replicas);
    ASSERT_FALSE(groups.ok());
    EXPECT_NE(groups.error().message.find("does not go with 4 nodes"), std::string::npos);
  }
}

TEST(TopologyReport, LinesFitAndNothingIsLost) {
  const Machine large = machine("package:2 [numa(memory=8GB)] core:96 pu:2");
  const std::string text = topology_text(large, placed(large, {}));
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
  for (int cpu = 0; cpu < 384; cpu += 2)
    EXPECT_NE(text.find("[" + std::to_string(cpu) + " "), std::string::npos) << cpu;
}

TEST(TopologyReport, JsonHasTheSame) {
  Machine two = machine(kTwoNodes);
  two.allowed.nodes = std::vector<int>{1};
  const std::string json = topology_json(two, placed(two, {}));
  for (const char* part :
       {"\"packages\":2", "\"os_index\":1", "\"cpus\":[14,15]", "\"allowed_cpus\":null",
        "\"allowed_nodes\":[1]", "\"ranks\":[{\"os_node\":1,\"cpus\":[10,12,14]}]"})
    EXPECT_NE(json.find(part), std::string::npos) << part << "\n" << json;
}

}  // namespace
}  // namespace cli
