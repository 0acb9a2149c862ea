// Regions, page placement, pinning, lifelines, futexes: the small parts.
#include "shm/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <thread>

#include "base/cat.h"
#include "shm/arena_dir.h"
#include "shm/futex.h"
#include "shm/lifeline.h"
#include "shm/pin.h"

namespace shm {
namespace {

using base::Code;

class RegionTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-region-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(const char* name) const { return base::cat(directory_, "/", name); }
  std::string directory_;
};

TEST_F(RegionTest, TwoMappingsAreOneMemory) {
  auto writer = Region::create(path("r"), {.bytes = 10000});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(writer->bytes() % 4096, 0u);
  EXPECT_GE(writer->bytes(), 10000u);
  auto reader = Region::open(path("r"), Access::kReadOnly, 10000);
  ASSERT_TRUE(reader.ok());
  EXPECT_NE(writer->data(), reader->data());
  std::strcpy(reinterpret_cast<char*>(writer->data() + 9000), "seen");
  EXPECT_STREQ(reinterpret_cast<char*>(reader->data() + 9000), "seen");
  // The name goes, the memory stays.
  EXPECT_TRUE(unlink_region(path("r")));
  EXPECT_FALSE(unlink_region(path("r")));
  EXPECT_STREQ(reinterpret_cast<char*>(reader->data() + 9000), "seen");
}

TEST_F(RegionTest, FilesArePrivateAndCloseOnExec) {
  auto region = Region::create(path("r"), {.bytes = 4096});
  ASSERT_TRUE(region.ok());
  const auto mode = std::filesystem::status(path("r")).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_NE(fcntl(region->file().fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(RegionTest, ErrorsHaveCodes) {
  ASSERT_TRUE(Region::create(path("r"), {.bytes = 4096}).ok());
  EXPECT_EQ(Region::create(path("r"), {.bytes = 4096}).error().code, Code::kUnavailable);
  EXPECT_EQ(Region::open(path("absent"), Access::kReadOnly, 1).error().code, Code::kNotFound);
  EXPECT_EQ(Region::open(path("r"), Access::kReadOnly, 4097).error().code, Code::kBrokenFile);
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(Region::open(path("empty"), Access::kReadOnly, 0).error().code, Code::kBrokenFile);
  // A name that leads somewhere else is not followed.
  ASSERT_EQ(symlink(path("r").c_str(), path("link").c_str()), 0);
  EXPECT_FALSE(Region::open(path("link"), Access::kReadOnly, 1).ok());
  // A node that no machine has; where mbind is forbidden, nobody can tell.
  const auto bound = Region::create(path("n"), {.bytes = 4096, .node = 1000});
  EXPECT_TRUE(!bound.ok() || bound->bind() == Bind::kDenied);
  EXPECT_EQ(std::filesystem::exists(path("n")), bound.ok());
}

TEST_F(RegionTest, PagesAreWhereTheyWereBound) {
  auto region = Region::create(path("r"), {.bytes = 64 * 4096, .node = 0});
  ASSERT_TRUE(region.ok()) << region.error().message;
  if (region->bind() == Bind::kDenied) GTEST_SKIP() << "mbind is forbidden here";
  EXPECT_EQ(region->bind(), Bind::kBound);
  std::memset(region->data(), 1, region->bytes());
  const PageNodes nodes = page_nodes(region->data(), region->bytes());
  if (!nodes.permitted) GTEST_SKIP() << "move_pages is forbidden here";
  EXPECT_EQ(nodes.pages_asked, 64u);
  EXPECT_EQ(nodes.pages_absent, 0u);
  EXPECT_EQ(nodes.share_on(0), 1.0);
  EXPECT_EQ(nodes.share_on(1), 0.0);
  const PageNodes totals = mapping_nodes(region->data() + 5000);
  if (totals.permitted) {
    EXPECT_EQ(totals.pages_asked, 64u);
    EXPECT_EQ(totals.share_on(0), 1.0);
  }
  EXPECT_EQ(page_nodes(region->data(), region->bytes(), 7).pages_asked, 10u);
}

TEST_F(RegionTest, UntouchedPagesAreAbsent) {
  auto region = Region::anonymous(8 * 4096);
  ASSERT_TRUE(region.ok());
  region->data()[4096] = std::byte{1};
  const PageNodes nodes = page_nodes(region->data(), region->bytes());
  if (!nodes.permitted) GTEST_SKIP() << "move_pages is forbidden here";
  EXPECT_EQ(nodes.pages_absent, 7u);
  const auto report = page_report(region->data());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->resident_bytes, 4096u);
  EXPECT_EQ(report->kernel_page_bytes, 4096u);
  EXPECT_FALSE(page_report(reinterpret_cast<void*>(8)).ok());
}

TEST_F(RegionTest, PinnedThreadsStay) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(static_cast<size_t>(cpu), &allowed)) continue;
    std::thread([cpu] {
      ASSERT_TRUE(pin_thread(cpu).ok());
      EXPECT_EQ(current_cpu(), cpu);
    }).join();
  }
  EXPECT_EQ(pin_thread(-1).error().code, Code::kInvalidArgument);
  EXPECT_EQ(pin_thread(4095).error().code, Code::kInvalidArgument);
  EXPECT_EQ(pin_thread(4096).error().code, Code::kInvalidArgument);
}

TEST_F(RegionTest, LifelineIsLostWhenItsHolderLetsGo) {
  auto mine = Lifeline::hold(path("life.0"));
  auto other = Lifeline::hold(path("life.1"));
  ASSERT_TRUE(mine.ok() && other.ok());
  EXPECT_EQ(Lifeline::hold(path("life.0")).error().code, Code::kUnavailable);
  PeerWatch watch;
  EXPECT_EQ(watch.add(2, path("life.2")).error().code, Code::kNotFound);
  ASSERT_TRUE(watch.add(0, path("life.0")).ok());
  ASSERT_TRUE(watch.add(1, path("life.1")).ok());
  EXPECT_EQ(watch.lost_rank(), -1);
  std::filesystem::remove(path("life.1"));  // the name does not matter
  EXPECT_EQ(watch.lost_rank(), -1);
  other->release();
  EXPECT_EQ(watch.lost_rank(), 1);
  mine->release();
  EXPECT_EQ(watch.lost_rank(), 0);
}

TEST_F(RegionTest, LifelineIsLostWhenItsProcessIsKilled) {
  const pid_t child = fork();
  if (child == 0) {
    const auto life = Lifeline::hold(path("life.0"));
    ::pause();
    _exit(life.ok() ? 0 : 1);
  }
  PeerWatch watch;
  while (!watch.add(0, path("life.0")).ok()) std::this_thread::yield();
  EXPECT_EQ(watch.lost_rank(), -1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(watch.lost_rank(), 0);
}

TEST_F(RegionTest, FutexWakesAcrossProcesses) {
  auto region = Region::anonymous(4096);
  ASSERT_TRUE(region.ok());
  auto* word = new (region->data()) std::atomic<uint32_t>{0};
  auto* woken = new (region->data() + 64) std::atomic<uint32_t>{0};
  const pid_t child = fork();
  if (child == 0) {
    while (word->load() == 0) futex_wait(*word, 0, 60'000'000'000);
    woken->store(1);
    _exit(0);
  }
  // Waking is only needed once it sleeps; if it does not yet, it sees the new value.
  word->store(1);
  while (woken->load() == 0) futex_wake_all(*word);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(RegionTest, FutexWaitsAreBounded) {
  std::atomic<uint32_t> word{5};
  const base::SteadyClock clock;
  const base::TimeNs begin = clock.now();
  futex_wait(word, 5, 3'000'000);
  futex_wait_until(word, 5, clock.now() + 3'000'000);
  EXPECT_GE(clock.now() - begin, 6'000'000);
  futex_wait(word, 4, 60'000'000'000);  // another value: no sleep at all
  futex_wait_until(word, 5, begin);     // past
  futex_wait(word, 5, -1);
}

// ---- which directory

class ArenaDirTest : public RegionTest {
 protected:
  void SetUp() override {
    RegionTest::SetUp();
    std::filesystem::create_directory(path("run"));
    std::filesystem::create_directory(path("shm"));
    std::ofstream(path("enabled")) << "always within_size [advise] never deny force\n";
    std::ofstream(path("mounts")) << "1 1 0:1 / / rw - ext4 /dev/vda rw\n";
    options_.run_directory = path("run");
    options_.shm_directory = path("shm");
    options_.mounts = path("mounts");
    options_.shmem_enabled = path("enabled");
  }
  void mount_line(const char* point, const char* rest) {
    std::ofstream(path("mounts"), std::ios::app)
        << "30 1 0:9 / " << path(point) << " rw,noatime shared:7 - " << rest << "\n";
  }
  std::string own(const char* parent) const {
    return base::cat(path(parent), "/numoe-", geteuid());
  }
  ArenaDirOptions options_;
};

TEST_F(ArenaDirTest, HugeRunMountIsTheDefault) {
  mount_line("run", "tmpfs numoe rw,size=90%,huge=within_size,inode64");
  const auto dir = choose_arena_dir(options_);
  ASSERT_TRUE(dir.ok()) << dir.error().message;
  EXPECT_EQ(dir->directory, own("run"));
  EXPECT_EQ(dir->file_system, "tmpfs huge=within_size");
  EXPECT_TRUE(dir->huge_pages);
  EXPECT_GT(dir->free_bytes, 0u);
  EXPECT_EQ(dir->warning, "");
  EXPECT_EQ(std::filesystem::status(dir->directory).permissions(),
            std::filesystem::perms::owner_all);
  EXPECT_TRUE(choose_arena_dir(options_).ok());  // again, now that it exists
}

TEST_F(ArenaDirTest, WithoutItShmServesWithAWarning) {
  mount_line("shm", "tmpfs tmpfs rw,size=8g");
  for (const char* why : {"not mounted", "small pages", "denied"}) {
    if (why == std::string("small pages")) mount_line("run", "tmpfs numoe rw,huge=advise");
    if (why == std::string("denied")) {
      mount_line("run", "tmpfs numoe rw,huge=always");
      std::ofstream(path("enabled")) << "always within_size advise never [deny] force\n";
    }
    const auto dir = choose_arena_dir(options_);
    ASSERT_TRUE(dir.ok()) << dir.error().message;
    EXPECT_EQ(dir->directory, own("shm")) << why;
    EXPECT_FALSE(dir->huge_pages);
    EXPECT_NE(dir->warning.find("pages of 4 KiB"), std::string::npos) << dir->warning;
    EXPECT_NE(dir->warning.find("GiB fit"), std::string::npos) << dir->warning;
  }
}

TEST_F(ArenaDirTest, GivenDirectoryIsTaken) {
  mount_line("run", "tmpfs numoe rw,huge=within_size");
  options_.directory = path("shm");
  const auto disk = choose_arena_dir(options_);
  ASSERT_TRUE(disk.ok());
  EXPECT_EQ(disk->directory, own("shm"));
  EXPECT_NE(disk->warning.find("ext4"), std::string::npos) << disk->warning;
  mount_line("shm", "hugetlbfs none rw,pagesize=2M");
  const auto huge = choose_arena_dir(options_);
  ASSERT_TRUE(huge.ok());
  EXPECT_TRUE(huge->huge_pages);
  EXPECT_EQ(huge->warning, "");
  options_.directory = path("absent");
  EXPECT_EQ(choose_arena_dir(options_).error().code, Code::kNotFound);
}

TEST_F(ArenaDirTest, ForeignOrOpenDirectoryIsRefused) {
  std::filesystem::create_directory(own("shm"));
  std::filesystem::permissions(own("shm"), std::filesystem::perms::all);
  EXPECT_EQ(choose_arena_dir(options_).error().code, Code::kInvalidArgument);
  std::filesystem::remove(own("shm"));
  std::filesystem::create_directory_symlink(path("run"), own("shm"));
  EXPECT_EQ(choose_arena_dir(options_).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace shm
