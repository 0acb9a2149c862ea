#include "shm/checkup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/cat.h"

namespace shm {
namespace {

namespace fs = std::filesystem;

/// A system of files.
class Tree {
 public:
  Tree() {
    std::string name = (fs::temp_directory_path() / "numoe-checkup-XXXXXX").string();
    root_ = mkdtemp(name.data());
    put("/proc/self/mountinfo", "22 1 0:5 / / rw - ext4 /dev/sda rw\n");
  }
  ~Tree() { fs::remove_all(root_); }

  Tree& put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
    return *this;
  }
  Tree& thp(const std::string& file, const std::string& text) {
    return put("/sys/kernel/mm/transparent_hugepage/" + file, text + "\n");
  }
  /// A directory that the tree's mountinfo calls a mount.
  Tree& mount(const std::string& path, const std::string& options) {
    fs::create_directories(root_ + path);
    mounts_ += base::cat("23 22 0:6 / ", root_, path, " rw - tmpfs tmpfs ", options, "\n");
    return put("/proc/self/mountinfo", "22 1 0:5 / / rw - ext4 /dev/sda rw\n" + mounts_);
  }

  HealthOptions options(unsigned uid = 0) const {
    return {.uid = uid,
            .root = root_,
            .rights = CallRights{},
            .arena_dir = ArenaDirOptions{
                .directory = {},
                .run_directory = root_ + "/run/numoe",
                .shm_directory = root_ + "/dev/shm",
                .mounts = root_ + "/proc/self/mountinfo",
                .shmem_enabled = root_ + "/sys/kernel/mm/transparent_hugepage/shmem_enabled"}};
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_, mounts_;
};

Topology two_nodes() {
  Topology topology;
  for (int node = 0; node < 2; ++node)
    topology.nodes.push_back(
        {.os_index = node, .memory_bytes = uint64_t{64} << 30, .cores = std::vector<Core>(4)});
  return topology;
}

Finding finding_of(const HealthFacts& facts, const std::string& id) {
  for (const Finding& finding : check_up(facts))
    if (finding.id == id) return finding;
  ADD_FAILURE() << "no finding " << id;
  return {.id = id};
}

Finding found_in(const Tree& tree, const std::string& id, unsigned uid = 0) {
  return finding_of(read_health_facts(two_nodes(), tree.options(uid)), id);
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Checkup, NamesShmemEnabledAndNotOnlyTheOtherHugePages) {
  for (const char* const word : {"never", "advise", "always"}) {
    Tree tree;
    tree.mount("/dev/shm", "rw,size=1g").thp("enabled", "[always] madvise never");
    tree.thp("shmem_enabled", base::cat("within_size deny [", word, "] force"));
    const Finding finding = found_in(tree, "shmem_enabled");
    EXPECT_EQ(finding.level, Level::kNote) << word;
    EXPECT_SAYS(finding.found, base::cat("[", word, "] in /sys/kernel"));
    EXPECT_SAYS(finding.why, "no huge pages");
    EXPECT_SAYS(finding.cure, "huge=within_size");
    const Finding arena = found_in(tree, "arena_directory");
    EXPECT_EQ(arena.level, Level::kWarning) << "small pages";
    EXPECT_SAYS(arena.cure, "mount -t tmpfs");
    EXPECT_EQ(found_in(tree, "transparent_huge_pages").level, Level::kOk);
  }
}

TEST(Checkup, IsContentWithAMountThatGivesHugePagesWhateverShmemEnabledSays) {
  Tree tree;
  tree.mount("/run/numoe", "rw,huge=within_size").mount("/dev/shm", "rw");
  tree.thp("shmem_enabled", "always [never] deny force");
  EXPECT_EQ(found_in(tree, "shmem_enabled").level, Level::kOk);
  const Finding arena = found_in(tree, "arena_directory");
  EXPECT_EQ(arena.level, Level::kOk) << arena.why;
  EXPECT_SAYS(arena.found, "huge pages");
  const Finding mounts = found_in(tree, "arena_mounts");
  EXPECT_SAYS(mounts.found, "/run/numoe: tmpfs");
  EXPECT_SAYS(mounts.found, "huge=within_size");
  EXPECT_SAYS(mounts.found, "/dev/shm: tmpfs");

  tree.thp("shmem_enabled", "always never [deny] force");
  const Finding denied = found_in(tree, "shmem_enabled");
  EXPECT_EQ(denied.level, Level::kWarning);
  EXPECT_SAYS(denied.cure, "echo never | sudo tee");
}

TEST(Checkup, WarnsOfNumaBalancingWhereThereIsMoreThanOneNode) {
  Tree tree;
  tree.mount("/dev/shm", "rw").put("/proc/sys/kernel/numa_balancing", "1\n");
  const Finding finding = found_in(tree, "numa_balancing");
  EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_SAYS(finding.found, "kernel.numa_balancing is 1 (/proc/sys/kernel/numa_balancing)");
  EXPECT_EQ(finding.cure, "sudo sysctl kernel.numa_balancing=0");
  Topology one = two_nodes();
  one.nodes.pop_back();
  EXPECT_EQ(finding_of(read_health_facts(one, tree.options()), "numa_balancing").level,
            Level::kNote);
  tree.put("/proc/sys/kernel/numa_balancing", "0\n");
  EXPECT_EQ(found_in(tree, "numa_balancing").level, Level::kOk);
}

TEST(Checkup, WarnsOfLogindThatEmptiesSharedMemory) {
  Tree tree;
  tree.mount("/dev/shm", "rw").put("/run/systemd/system/x", "");
  tree.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n");
  const Finding finding = found_in(tree, "remove_ipc", 1000);
  EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_SAYS(finding.found, "RemoveIPC=yes by default");
  for (const char* const cure : {"system user", "loginctl enable-linger ada", "RemoveIPC=no"})
    EXPECT_SAYS(finding.cure, cure);

  EXPECT_EQ(found_in(tree, "remove_ipc", 999).level, Level::kOk) << "system users are spared";
  tree.put("/var/lib/systemd/linger/ada", "");
  EXPECT_EQ(found_in(tree, "remove_ipc", 1000).level, Level::kOk);
  fs::remove(tree.root() + "/var/lib/systemd/linger/ada");
  fs::remove_all(tree.root() + "/run/systemd");
  EXPECT_EQ(found_in(tree, "remove_ipc", 1000).level, Level::kOk) << "no systemd";
}

TEST(Checkup, ReadsRemoveIpcAsSystemdDoes) {
  Tree tree;
  tree.mount("/dev/shm", "rw").put("/run/systemd/system/x", "");
  const auto removes = [&] {
    return read_health_facts(two_nodes(), tree.options(1000)).remove_ipc;
  };
  EXPECT_TRUE(removes());
  tree.put("/usr/lib/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
  EXPECT_FALSE(removes());
  tree.put("/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n RemoveIPC = yes \n");
  EXPECT_TRUE(removes()) << "/etc comes before /usr";
  tree.put("/usr/lib/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=off\n");
  EXPECT_FALSE(removes()) << "drop-ins come after all";
  tree.put("/etc/systemd/logind.conf.d/50-ipc.conf", "[Login]\nRemoveIPC=true\n");
  EXPECT_TRUE(removes()) << "one of the same name in /etc hides it";
  tree.put("/run/systemd/logind.conf.d/90-last.conf", "[Login]\nRemoveIPC=0\n");
  EXPECT_FALSE(removes()) << "the last name counts";
  tree.put("/run/systemd/logind.conf.d/99-note.txt", "[Login]\nRemoveIPC=1\n");
  EXPECT_FALSE(removes()) << "other names do not count";
}

TEST(Checkup, TellsTheQuotaOfTheTightestGroupAndWhetherItBites) {
  Tree tree;
  tree.mount("/dev/shm", "rw").put("/proc/self/cgroup", "0::/a/b\n");
  tree.put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  tree.put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  tree.put("/sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nnr_periods 200\nnr_throttled 50\n");
  tree.put("/sys/fs/cgroup/a/b/cpu.stat", "nr_periods 0\nnr_throttled 0\n");
  const Finding bites = found_in(tree, "cpu_quota");
  EXPECT_EQ(bites.level, Level::kWarning);
  EXPECT_SAYS(bites.found, "grants 1.5 CPUs of time for 8 cores");
  EXPECT_SAYS(bites.found, "throttled in 50 of 200 periods");
  EXPECT_SAYS(bites.why, "at most 1 compute thread is used");
  EXPECT_SAYS(bites.cure, "cpuset");

  tree.put("/sys/fs/cgroup/a/cpu.max", "765000 100000\n");
  tree.put("/sys/fs/cgroup/a/cpu.stat", "nr_periods 2000\nnr_throttled 0\n");
  const Finding fits = found_in(tree, "cpu_quota");
  EXPECT_EQ(fits.level, Level::kNote);
  EXPECT_SAYS(fits.why, "at most 7 compute threads are used");
  tree.put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found_in(tree, "cpu_quota").level, Level::kOk);
}

TEST(Checkup, NamesDeniedCallsWithTheRightThatHelps) {
  Tree tree;
  tree.mount("/dev/shm", "rw");
  HealthFacts facts = read_health_facts(two_nodes(), tree.options());
  EXPECT_EQ(finding_of(facts, "call_rights").level, Level::kOk);
  facts.rights = {Right::kDenied, Right::kDenied, Right::kDenied, Right::kDenied};
  const Finding all = finding_of(facts, "call_rights");
  EXPECT_EQ(all.level, Level::kWarning);
  EXPECT_SAYS(all.found, "mbind denied (EPERM)");
  EXPECT_SAYS(all.cure, "--cap-add SYS_NICE");
  facts.rights = {};
  facts.rights.move_pages = Right::kDenied;
  const Finding one = finding_of(facts, "call_rights");
  EXPECT_EQ(one.level, Level::kNote) << "Docker denies it to everybody";
  EXPECT_SAYS(one.why, "numa_maps");
  EXPECT_EQ(one.cure.find("SYS_NICE"), std::string::npos) << "it would not help";
}

TEST(Checkup, ReadsLimitsAndSettings) {
  Tree tree;
  tree.mount("/dev/shm", "rw");
  tree.put("/proc/self/limits",
           "Limit                     Soft Limit           Hard Limit           Units     \n"
           "Max locked memory         65536                65536                bytes     \n");
  tree.put(
      "/proc/meminfo",
      "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n");
  tree.put("/proc/sys/vm/swappiness", "60\n").put("/proc/sys/vm/max_map_count", "1024\n");
  tree.put("/proc/sys/vm/zone_reclaim_mode", "1\n").put("/proc/sys/vm/overcommit_memory", "2\n");
  tree.put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  tree.put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
  tree.put("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "ondemand\n");
  tree.put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "12\n");
  tree.put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n");
  tree.put("/sys/fs/cgroup/memory.max", "536870912\n").put("/proc/self/cgroup", "0::/\n");
  const HealthFacts facts = read_health_facts(two_nodes(), tree.options());
  EXPECT_SAYS(finding_of(facts, "memlock").found, "64.0 KiB");
  EXPECT_SAYS(finding_of(facts, "memlock").cure, "--ulimit memlock=-1");
  EXPECT_EQ(finding_of(facts, "swap").level, Level::kWarning);
  EXPECT_SAYS(finding_of(facts, "swap").found, "2.0 MiB of swap, 1.0 MiB used");
  EXPECT_EQ(finding_of(facts, "max_map_count").level, Level::kWarning);
  EXPECT_EQ(finding_of(facts, "zone_reclaim_mode").level, Level::kWarning);
  EXPECT_EQ(finding_of(facts, "overcommit").level, Level::kWarning);
  EXPECT_EQ(finding_of(facts, "cpu_governor").level, Level::kWarning);
  EXPECT_SAYS(finding_of(facts, "cpu_governor").found, "performance on 1 CPUs, powersave on 1");
  EXPECT_SAYS(finding_of(facts, "hugetlb_pools").found, "node 1: 12 of 2.0 MiB, 3 free");
  EXPECT_SAYS(finding_of(facts, "memory").found, "the cgroup allows 512.0 MiB");
  // One line each for the start of a server, but nothing of what is said elsewhere.
  const std::vector<std::string> lines = start_warnings(check_up(facts));
  ASSERT_EQ(lines.size(), 5u);
  for (const std::string& line : lines) {
    EXPECT_SAYS(line, "; cure: ");
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
}

TEST(Checkup, TellsAContainerAndWhatIsWithheld) {
  Tree tree;
  tree.mount("/dev/shm", "rw").put("/.dockerenv", "");
  tree.put("/proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n");
  tree.put("/sys/devices/system/cpu/online", "0-7\n");
  tree.put("/sys/devices/system/node/has_memory", "0-1\n");
  EXPECT_SAYS(found_in(tree, "container").found, "/.dockerenv");
  const Finding cpuset = found_in(tree, "cpuset");
  EXPECT_EQ(cpuset.level, Level::kNote);
  EXPECT_SAYS(cpuset.found, "CPUs 0-1 of 0-7, memory of nodes 0 of 0-1");
  EXPECT_SAYS(found_in(tree, "arena_directory").cure, "-v /run/numoe:/run/numoe");
}

TEST(Checkup, CallsAPlaceThatCannotBeUsedAProblem) {
  Tree tree;
  HealthOptions options = tree.options();
  options.arena_directory = tree.root() + "/nowhere";
  const HealthFacts facts = read_health_facts(two_nodes(), options);
  const Finding finding = finding_of(facts, "arena_directory");
  EXPECT_EQ(finding.level, Level::kProblem);
  EXPECT_SAYS(finding.found, "/nowhere");
  EXPECT_SAYS(finding.cure, "--arena-dir");
}

TEST(Checkup, HasACureForEveryWarningAndNothingToSayOfAnEmptyTree) {
  const Tree tree;
  for (const Finding& finding : check_up(read_health_facts(two_nodes(), tree.options()))) {
    EXPECT_FALSE(finding.found.empty()) << finding.id;
    if (finding.level >= Level::kWarning) {
      EXPECT_FALSE(finding.why.empty()) << finding.id;
      EXPECT_FALSE(finding.cure.empty()) << finding.id;
    }
  }
}

}  // namespace
}  // namespace shm
