#include "shm/machine_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/cat.h"

namespace shm {
namespace {

namespace fs = std::filesystem;

TEST(Spread, TakesTheMiddleOrTheMeanOfTheMiddleTwo) {
  const Spread odd = spread_of({9, 1, 5});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 9);
  EXPECT_EQ(odd.samples, 3);
  EXPECT_EQ(spread_of({8, 1, 2, 4}).median, 3);
  EXPECT_EQ(spread_of({7}).median, 7);
  EXPECT_EQ(spread_of({}).samples, 0);
}

TEST(CpuList, JoinsNeighbours) {
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({4}), "4");
  EXPECT_EQ(cpu_list({3, 1, 0, 2, 8, 10, 11}), "0-3,8,10-11");
}

MachineFacts server() {
  MachineFacts facts;
  facts.cpu_model = "EPYC";
  facts.kernel = "6.1.0-18-amd64";
  facts.governor = "performance";
  facts.transparent_huge_pages = "always";
  facts.shmem_huge_pages = "never";
  facts.numa_balancing = "0";
  facts.packages = 2;
  facts.nodes.resize(2);
  for (int node = 0; node < 2; ++node) {
    auto& own = facts.nodes[static_cast<size_t>(node)];
    own.os_index = own.package = node;
    own.memory_bytes = uint64_t{512} << 30;
    own.cores = 64;
    own.cpus = node == 0 ? "0-63" : "64-127";
  }
  facts.last_caches = {{uint64_t{256} << 20, "0-63"}, {uint64_t{256} << 20, "64-127"}};
  return facts;
}

TEST(Fingerprint, ChangesWithEveryIngredient) {
  const std::function<void(MachineFacts&)> changes[] = {
      [](MachineFacts& f) { f.cpu_model = "Xeon"; },
      [](MachineFacts& f) { f.hypervisor = "yes"; },
      [](MachineFacts& f) { f.board = "another"; },
      [](MachineFacts& f) { f.kernel = "6.2.0-18-amd64"; },
      [](MachineFacts& f) { f.cpu_quota = 8; },
      [](MachineFacts& f) { f.packages = 1; },
      [](MachineFacts& f) { f.transparent_huge_pages = "never"; },
      [](MachineFacts& f) { f.shmem_huge_pages = "advise"; },
      [](MachineFacts& f) { f.numa_balancing = "1"; },
      [](MachineFacts& f) { f.governor = "powersave"; },
      [](MachineFacts& f) { f.nodes.pop_back(); },
      [](MachineFacts& f) { f.nodes[1].os_index = 2; },
      [](MachineFacts& f) { f.nodes[1].package = 0; },
      [](MachineFacts& f) { f.nodes[1].cores = 63; },
      [](MachineFacts& f) { f.nodes[1].cpus = "64-126"; },
      [](MachineFacts& f) { f.nodes[1].memory_bytes -= uint64_t{64} << 30; },
      [](MachineFacts& f) { f.last_caches[0].bytes *= 2; },
      [](MachineFacts& f) { f.last_caches[0].cpus = "0-31"; },
  };
  std::set<std::string> seen = {fingerprint_of(server())};
  EXPECT_EQ(seen.begin()->size(), 16u);
  for (const auto& change : changes) {
    MachineFacts facts = server();
    change(facts);
    EXPECT_TRUE(seen.insert(fingerprint_of(facts)).second) << "change " << seen.size();
  }
}

TEST(Fingerprint, IgnoresWhatDoesNotChangeResults) {
  const std::string before = fingerprint_of(server());
  MachineFacts facts = server();
  facts.kernel = "6.1.0-99-amd64";
  facts.nodes[0].memory_bytes += 40 << 20;  // another kernel keeps a little more for itself
  facts.nodes[0].free_bytes = 1;
  facts.available_bytes = 1;
  EXPECT_EQ(fingerprint_of(facts), before);
}

/// A system of files, removed at the end.
class Facts : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / base::cat("numoe-facts-", getpid());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(Facts, AreReadFromTheSystem) {
  put("proc/cpuinfo",
      "processor\t: 0\nmodel name\t: AMD EPYC 9654\nmicrocode\t: 0xa1\nflags\t: fpu hypervisor\n\n"
      "processor\t: 1\nmodel name\t: other\n");
  put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  put("proc/sys/kernel/numa_balancing", "1\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  put("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [never] deny\n");
  put("sys/class/dmi/id/sys_vendor", "Super\xb5icro\n");
  put("sys/class/dmi/id/product_name", "H13\n");
  put("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:   1000 kB\n");
  put("sys/devices/system/node/node1/meminfo",
      "Node 1 MemTotal: 900 kB\nNode 1 MemFree:  500 kB\nNode 1 Inactive(file): 100 kB\n");
  put("sys/devices/system/node/node1/distance", "21 10 255\n");
  put("proc/self/cgroup", "4:memory:/user/mine\n0::/user/mine\n");
  put("sys/fs/cgroup/user/memory.max", "4096\n");
  put("sys/fs/cgroup/user/mine/memory.max", "max\n");
  put("sys/fs/cgroup/memory/user/mine/memory.limit_in_bytes", "9223372036854771712\n");
  Topology topology;
  topology.packages = 2;
  topology.last_cache_bytes = {1 << 20};
  topology.nodes = {{.os_index = 0, .memory_bytes = 5, .cores = {}},
                    {.os_index = 1,
                     .memory_bytes = 7,
                     .cores = {{.package = 1, .cpus = {2, 6}, .last_cache = 0},
                               {.package = 1, .cpus = {3, 7}, .last_cache = 0}}}};
  const MachineFacts facts = read_machine_facts(topology, root_.string());
  EXPECT_EQ(facts.cpu_model, "AMD EPYC 9654");
  EXPECT_EQ(facts.microcode, "0xa1");
  EXPECT_EQ(facts.hypervisor, "yes");
  EXPECT_EQ(facts.board, "Super?icro H13");
  EXPECT_EQ(facts.kernel, "6.1.0-18-amd64");
  EXPECT_EQ(facts.numa_balancing, "1");
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_EQ(facts.shmem_huge_pages, "never");
  EXPECT_EQ(facts.available_bytes, 1000u * 1024);
  EXPECT_EQ(facts.memory_limit_bytes, 4096u);
  ASSERT_EQ(facts.nodes.size(), 2u);
  EXPECT_EQ(facts.nodes[0].cores, 0);
  EXPECT_EQ(facts.nodes[0].free_bytes, 0u);
  EXPECT_EQ(facts.nodes[1].free_bytes, 600u * 1024);
  EXPECT_EQ(facts.nodes[1].package, 1);
  EXPECT_EQ(facts.nodes[1].cpus, "2-3,6-7");
  EXPECT_EQ(facts.nodes[1].distances, (std::vector<int>{21, 10, 255}));
  ASSERT_EQ(facts.last_caches.size(), 1u);
  EXPECT_EQ(facts.last_caches[0].cpus, "2-3,6-7");
}

TEST_F(Facts, AreEmptyWhereTheSystemDoesNotSay) {
  const MachineFacts facts = read_machine_facts(Topology{}, root_.string());
  EXPECT_EQ(facts.cpu_model, "");
  EXPECT_EQ(facts.governor, "");
  EXPECT_EQ(facts.transparent_huge_pages, "");
  EXPECT_EQ(facts.memory_limit_bytes, 0u);
  EXPECT_EQ(fingerprint_of(facts).size(), 16u);
}

}  // namespace
}  // namespace shm
