#include "shm/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/cat.h"

namespace shm {
namespace {

using Numbers = std::vector<int>;

/// A root directory with the files of a cgroup tree.
class Cgroup : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/numoe-cgroup-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
};

TEST_F(Cgroup, TightestAncestorCounts) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  EXPECT_EQ(read_cpu_quota(root_), 0);
  write("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 8);
  write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 1.5);
  write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 1.5);
  write("/sys/fs/cgroup/cpu.max", "100000 200000\n");
  EXPECT_EQ(read_cpu_quota(root_), 0.5);
}

TEST_F(Cgroup, VersionOneAndHybrid) {
  write("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/a/b\n0::/init\n");
  write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 0);
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 2.5);
}

TEST_F(Cgroup, NonsenseIsNoQuota) {
  EXPECT_EQ(read_cpu_quota(root_), 0);
  write("/proc/self/cgroup", "nonsense\n0::\n0::/a");
  for (const char* text : {"", "max", "x y", "100000", "0 100000", "100000 0", "-5 100000"}) {
    write("/sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(read_cpu_quota(root_), 0) << text;
  }
}

// `docker run --cpus 7.65`, as a container sees itself.
TEST_F(Cgroup, FractionsOfACpu) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "765000 100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 7.65);
}

// Docker on a host of version 1: the path is the host's, the mount shows the container's own group.
TEST_F(Cgroup, APathThatIsNotMountedMeansTheRoot) {
  write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read_cpu_quota(root_), 4);
}

TEST_F(Cgroup, AllowedSetsAreTheKernelsOwn) {
  EXPECT_FALSE(read_allowed(root_).cpus);
  EXPECT_FALSE(read_allowed(root_).nodes);
  write("/proc/thread-self/status",
        "Name:\tnumoe\nCpus_allowed:\t10f\nCpus_allowed_list:\t0-3,8\n"
        "Mems_allowed:\t00000000,00000004\nMems_allowed_list:\t2\nvoluntary_ctxt_switches:\t1\n");
  EXPECT_EQ(read_allowed(root_).cpus, (Numbers{0, 1, 2, 3, 8}));
  EXPECT_EQ(read_allowed(root_).nodes, Numbers{2});
  write("/proc/thread-self/status", "Cpus_allowed_list:\nMems_allowed_list:\tx\n");
  EXPECT_FALSE(read_allowed(root_).cpus);
  EXPECT_FALSE(read_allowed(root_).nodes);
}

TEST(NumberList, RangesInAnyOrderCountOnce) {
  EXPECT_EQ(*parse_number_list("7"), Numbers{7});
  EXPECT_EQ(*parse_number_list("8,0-3,2-4"), (Numbers{0, 1, 2, 3, 4, 8}));
}

TEST(NumberList, NonsenseIsQuoted) {
  for (const char* text : {"", ",", "1,", ",1", "-1", "3-1", "1-", "a", "1 2", "1-2-3", "0x1", "+1",
                           "8192", "0-99999999999"}) {
    const auto numbers = parse_number_list(text);
    ASSERT_FALSE(numbers.ok()) << text;
    EXPECT_EQ(numbers.error().code, base::Code::kInvalidArgument);
    EXPECT_NE(numbers.error().message.find(base::cat("\"", text, "\"")), std::string::npos)
        << numbers.error().message;
  }
}

}  // namespace
}  // namespace shm
