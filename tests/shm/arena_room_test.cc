// Refusals before loading: the numbers, the line that cures, and where the numbers come from.
#include "shm/arena_room.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cat.h"

namespace shm {
namespace {

namespace fs = std::filesystem;
using base::Code;

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

/// Two nodes of 512 GiB, a tmpfs that holds all of it, no cgroup.
RoomFacts two_nodes() {
  RoomFacts facts;
  for (const int node : {0, 1})
    facts.nodes.push_back({.node = node, .total_bytes = 512 * kGiB, .free_bytes = 500 * kGiB});
  facts.weights = {.directory = "/dev/shm/numoe-0",
                   .mount_point = "/dev/shm",
                   .device = 7,
                   .total_bytes = 1000 * kGiB,
                   .free_bytes = 990 * kGiB};
  facts.others = facts.weights;
  return facts;
}

std::vector<RankNeed> two_ranks() {
  std::vector<RankNeed> needs;
  for (const int node : {0, 1})
    needs.push_back({.node = node,
                     .weight_bytes = 400 * kGiB,
                     .kv_bytes = 12 * kGiB,
                     .exchange_bytes = 64 * kMiB});
  return needs;
}

void expect_refused(const RoomFacts& facts, const std::vector<RankNeed>& needs,
                    std::initializer_list<const char*> says, HugePages pages = HugePages::kAuto,
                    Code code = Code::kNoSpace) {
  const base::Status status = check_room(facts, needs, pages);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, code);
  for (const char* const text : says)
    EXPECT_NE(status.error().message.find(text), std::string::npos)
        << "'" << text << "' is not in: " << status.error().message;
}

TEST(ArenaRoomTest, WhatFitsFits) {
  EXPECT_TRUE(check_room(two_nodes(), two_ranks(), HugePages::kAuto).ok());
  EXPECT_TRUE(check_room(two_nodes(), two_ranks(), HugePages::kOff).ok());
  // A system that tells nothing has no limits.
  EXPECT_TRUE(check_room({}, two_ranks(), HugePages::kAuto).ok());
}

TEST(ArenaRoomTest, NodeThatLacksIsNamedWithItsNumbers) {
  RoomFacts facts = two_nodes();
  facts.nodes[1].free_bytes = 380 * kGiB;
  expect_refused(facts, two_ranks(),
                 {"needs 412.1 GiB on node 1", "400.0 GiB weights", "12.0 GiB KV cache",
                  "64.0 MiB exchange", "380.0 GiB free", "--ctx", "numactl --hardware"});
  facts.nodes[0].free_bytes = 0;
  expect_refused(facts, two_ranks(), {"on node 0", "0.0 MiB free", "on node 1"});
}

TEST(ArenaRoomTest, LastPagesOfANodeStay) {
  RoomFacts facts = two_nodes();
  const uint64_t need = 412 * kGiB + 64 * kMiB;
  facts.nodes[1].free_bytes = need + kGiB;
  EXPECT_TRUE(check_room(facts, two_ranks(), HugePages::kAuto).ok());
  facts.nodes[1].free_bytes -= 1;
  expect_refused(facts, two_ranks(), {"1.0 GiB stay for the system"});
  // A node of 256 MiB does not keep a GiB.
  RoomFacts small;
  small.nodes = {{.node = 0, .total_bytes = 256 * kMiB, .free_bytes = 200 * kMiB}};
  EXPECT_TRUE(
      check_room(small, std::vector<RankNeed>{{.node = 0, .weight_bytes = 196 * kMiB}}, {}).ok());
}

TEST(ArenaRoomTest, SimulatedRanksShareAllNodes) {
  std::vector<RankNeed> needs = two_ranks();
  for (RankNeed& need : needs) need.node = -1;
  RoomFacts facts = two_nodes();
  facts.nodes[1].free_bytes = 380 * kGiB;
  EXPECT_TRUE(check_room(facts, needs, HugePages::kAuto).ok());
  facts.nodes[1].free_bytes = 300 * kGiB;
  expect_refused(facts, needs, {"needs 824.1 GiB in all", "800.0 GiB free"});
}

TEST(ArenaRoomTest, FullFileSystemIsCuredByItsSize) {
  RoomFacts facts = two_nodes();
  facts.weights.total_bytes = 64 * kMiB;
  facts.weights.free_bytes = 60 * kMiB;
  const std::vector<RankNeed> needs = {{.weight_bytes = 90 * kMiB, .kv_bytes = 6 * kMiB}};
  expect_refused(
      facts, needs,
      {"needs 96.0 MiB in /dev/shm/numoe-0", "60.0 MiB free of 64.0 MiB",
       "mount -o remount,size=101m /dev/shm", "--shm-size=101m", "--arena-dir", "--ctx"});
  facts.kept_bytes = 50 * kMiB;
  expect_refused(facts, needs, {"numoe shm rm frees 50.0 MiB"});
  facts.weights.total_bytes = 0;  // without a limit of its own
  EXPECT_TRUE(check_room(facts, needs, HugePages::kAuto).ok());
}

TEST(ArenaRoomTest, CgroupCountsWeightsAndCache) {
  RoomFacts facts = two_nodes();
  facts.cgroup = {
      .directory = "/sys/fs/cgroup/numoe", .limit_bytes = 900 * kGiB, .free_bytes = 824 * kGiB};
  expect_refused(facts, two_ranks(),
                 {"needs 824.1 GiB", "limit of 900.0 GiB leaves 824.0 GiB",
                  "memory.max in /sys/fs/cgroup/numoe", "docker run --memory"});
  facts.cgroup->free_bytes += kGiB;
  EXPECT_TRUE(check_room(facts, two_ranks(), HugePages::kAuto).ok());
}

/// Weights on a hugetlbfs of 2 MiB pages, the rest on a tmpfs.
RoomFacts with_hugetlbfs() {
  RoomFacts facts = two_nodes();
  facts.weights = {.directory = "/mnt/huge/numoe-0",
                   .mount_point = "/mnt/huge",
                   .device = 8,
                   .huge_page_bytes = 2 * kMiB};
  for (NodeRoom& node : facts.nodes) {
    node.free_bytes = 20 * kGiB;  // what is left beside the pools
    node.huge_pages = node.huge_pages_free = 210'000;
  }
  return facts;
}

TEST(ArenaRoomTest, HugePagesAreCountedByNode) {
  RoomFacts facts = with_hugetlbfs();
  for (const HugePages pages : {HugePages::kAuto, HugePages::k2M})
    EXPECT_TRUE(check_room(facts, two_ranks(), pages).ok());
  facts.nodes[1].huge_pages_free = 100'000;  // of 210000: others have the rest
  expect_refused(facts, two_ranks(),
                 {"huge pages of 2 MiB", "204800 on node 1 where 100000 are free",
                  "echo 314800 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/"
                  "nr_hugepages"},
                 HugePages::k2M);
  std::vector<RankNeed> needs = two_ranks();
  for (RankNeed& need : needs) need.node = -1;
  expect_refused(facts, needs,
                 {"409600 in all where 310000", "/sys/kernel/mm/hugepages/hugepages-2048kB"});
  // The pools are no part of what nodes and cgroups call free.
  facts = with_hugetlbfs();
  facts.cgroup = {.directory = "/c", .limit_bytes = 40 * kGiB, .free_bytes = 30 * kGiB};
  EXPECT_TRUE(check_room(facts, two_ranks(), HugePages::k2M).ok());
  facts.nodes[0].free_bytes = 11 * kGiB;
  expect_refused(facts, two_ranks(), {"needs 12.1 GiB on node 0", "0.0 MiB weights"});
}

TEST(ArenaRoomTest, PageSizeThatTheDirectoryCannotGiveIsRefused) {
  expect_refused(two_nodes(), two_ranks(),
                 {"/dev/shm/numoe-0 is no hugetlbfs", "mount -t hugetlbfs -o pagesize=2M",
                  "--arena-dir /mnt/huge-2M"},
                 HugePages::k2M, Code::kInvalidArgument);
  expect_refused(with_hugetlbfs(), two_ranks(), {"has pages of 2 MiB", "pagesize=1G"},
                 HugePages::k1G, Code::kInvalidArgument);
  expect_refused(with_hugetlbfs(), two_ranks(), {"only pages of 2 MiB"}, HugePages::kOff,
                 Code::kInvalidArgument);
}

TEST(ArenaRoomTest, SizesAreReadable) {
  EXPECT_EQ(memory_text(0), "0.0 MiB");
  EXPECT_EQ(memory_text(65536), "64.0 KiB");
  EXPECT_EQ(memory_text(52 * kMiB + kMiB / 3), "52.3 MiB");
  EXPECT_EQ(memory_text(kGiB - 1), "1024.0 MiB");
  EXPECT_EQ(memory_text(412 * kGiB), "412.0 GiB");
  EXPECT_EQ(memory_text(~uint64_t{0}), "17179869184.0 GiB");
}

/// A tree with /proc and /sys as a system has them.
class RoomFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/numoe-room-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    write("/proc/thread-self/status", "Name:\tx\nMems_allowed_list:\t0-1\n");
    node(0,
         "MemTotal: 1000 kB\nNode 0 MemFree: 100 kB\nNode 0 Active(file): 10 kB\n"
         "Node 0 Inactive(file): 20 kB\nNode 0 SReclaimable: 5 kB\nNode 0 Shmem: 500 kB");
    node(1, "MemTotal: 2000 kB\nNode 1 MemFree: 7 kB");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void node(int number, const std::string& text) {
    write(base::cat("/sys/devices/system/node/node", number, "/meminfo"),
          base::cat("\nNode ", number, " ", text, "\n"));
  }
  RoomFacts read() {
    const auto facts = read_room({.weights_directory = root_,
                                  .others_directory = root_,
                                  .root = root_,
                                  .mounts = root_ + "/mounts"});
    EXPECT_TRUE(facts.ok());
    return facts.ok() ? *facts : RoomFacts();
  }

  std::string root_;
};

TEST_F(RoomFactsTest, NodesWithCacheThatCanGo) {
  const RoomFacts facts = read();
  ASSERT_EQ(facts.nodes.size(), 2u);
  EXPECT_EQ(facts.nodes[0].total_bytes, 1000u * 1024);
  EXPECT_EQ(facts.nodes[0].free_bytes, 135u * 1024);  // shared memory does not go
  EXPECT_EQ(facts.nodes[1].free_bytes, 7u * 1024);
  EXPECT_FALSE(facts.cgroup.has_value());
  EXPECT_GT(facts.weights.total_bytes, 0u);
  EXPECT_EQ(facts.weights.device, facts.others.device);
  EXPECT_EQ(facts.weights.huge_page_bytes, 0u);
  // A node that the cpuset forbids is none of ours.
  write("/proc/thread-self/status", "Name:\tx\nMems_allowed_list:\t1\n");
  ASSERT_EQ(read().nodes.size(), 1u);
  EXPECT_EQ(read().nodes[0].node, 1);
}

TEST_F(RoomFactsTest, SecondVersionOfCgroups) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/memory.max", "1000000\n");
  write("/sys/fs/cgroup/a/memory.current", "900000\n");
  write("/sys/fs/cgroup/a/memory.stat",
        "anon 5\ninactive_file_x 9\ninactive_file 200000\nactive_file 100000\n");
  const RoomFacts facts = read();
  ASSERT_TRUE(facts.cgroup.has_value());
  EXPECT_EQ(facts.cgroup->limit_bytes, 1'000'000u);
  EXPECT_EQ(facts.cgroup->free_bytes, 400'000u);
  EXPECT_EQ(facts.cgroup->directory, root_ + "/sys/fs/cgroup/a");
  // The tightest counts, also if it is the inner one.
  write("/sys/fs/cgroup/a/b/memory.max", "1000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "2000\n");
  EXPECT_EQ(read().cgroup->free_bytes, 0u);
}

TEST_F(RoomFactsTest, FirstVersionOfCgroups) {
  write("/proc/self/cgroup", "4:memory:/x\n2:cpu:/y\n0::/\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4000\n");
  write("/sys/fs/cgroup/memory/x/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
  ASSERT_TRUE(read().cgroup.has_value());
  EXPECT_EQ(read().cgroup->free_bytes, 1500u);
}

TEST_F(RoomFactsTest, PoolsOfHugePages) {
  write("/mounts", base::cat("36 35 0:44 / ", root_, " rw - hugetlbfs none rw,pagesize=2M\n"));
  // The page size is the file system's own; the directory of the test is none in truth.
  const uint64_t page = read().weights.huge_page_bytes;
  ASSERT_GT(page, 0u);
  const std::string pool =
      base::cat("/sys/devices/system/node/node1/hugepages/hugepages-", page / 1024, "kB/");
  write(pool + "nr_hugepages", "12\n");
  write(pool + "free_hugepages", "5\n");
  const RoomFacts facts = read();
  EXPECT_EQ(facts.nodes[0].huge_pages, 0u);
  EXPECT_EQ(facts.nodes[1].huge_pages, 12u);
  EXPECT_EQ(facts.nodes[1].huge_pages_free, 5u);
}

TEST(RoomQueryTest, MissingDirectoryIsAnError) {
  EXPECT_FALSE(read_room({.weights_directory = "/absent", .others_directory = "/"}).ok());
}

}  // namespace
}  // namespace shm
