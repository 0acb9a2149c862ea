#include "shm/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/cat.h"
#include "shm/arena_dir.h"
#include "tests/shm/arena_fixture.h"

namespace shm {
namespace {

using base::Code;

TEST_F(ArenaTest, RoundTrip) {
  {
    const auto arena = make("x", true);
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    EXPECT_EQ(arena->state(), ArenaState::kReady);
    EXPECT_FALSE(arena->was_taken_over());
  }
  struct stat status;
  ASSERT_EQ(stat(path("x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto arena = Arena::attach(directory_, "x", identity());
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_EQ(arena->header().identity, identity());
  EXPECT_EQ(arena->header().content, (Hash128{.low = 21, .high = 22}));
  EXPECT_EQ(arena->progress(), arena->header().data_bytes);
  ASSERT_EQ(arena->tensors().size(), 3u);
  const TensorEntry* entry = arena->find("blk.1.weight", 64);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(arena->find("blk.1.weight", 0), nullptr);
  EXPECT_EQ(arena->find("blk.9.weight", 64), nullptr);
  EXPECT_EQ(entry->rows, 33u);
  EXPECT_EQ(entry->row_length, 256u);
  EXPECT_EQ(entry->bytes, 1077u);
  for (const TensorEntry& tensor : arena->tensors()) {
    for (uint64_t i = 0; i < tensor.bytes; ++i) {
      ASSERT_EQ(arena->data(tensor.offset)[i], byte(tensor, i)) << tensor.name << " byte " << i;
    }
  }
  EXPECT_TRUE(arena->verify().ok());
}

// Not the "threadsafe" style: it runs the whole test again and would leave its directory.
TEST_F(ArenaTest, SealedMemoryCannotBeWritten) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const auto arena = make("x");
  ASSERT_TRUE(arena.ok());
  EXPECT_DEATH(std::memset(arena->data(0), 0, 1), "");
}

TEST_F(ArenaTest, HalfLoadedArenaIsTakenOver) {
  die_while_loading();
  const auto attached = Arena::attach(directory_, "x");
  ASSERT_FALSE(attached.ok());
  EXPECT_EQ(attached.error().code, Code::kBrokenFile);
  EXPECT_NE(attached.error().message.find("died half-way"), std::string::npos);
  const auto arena = make("x");
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_TRUE(arena->was_taken_over());
  EXPECT_TRUE(Arena::attach(directory_, "x", identity())->verify().ok());
}

TEST_F(ArenaTest, HalfLoadedArenaIsRemoved) {
  die_while_loading();
  EXPECT_EQ(remove_leftovers(directory_, Kept::kStay).arenas, 1);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

// A creator that dies between creating the file and writing the magic leaves zeros or nothing.
TEST_F(ArenaTest, BarelyBegunArenaIsTakenOver) {
  for (const off_t size : {off_t{0}, off_t{8192}}) {
    const int fd = open(path("x").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(ftruncate(fd, size), 0);
    close(fd);
    const auto arena = make("x");
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    EXPECT_TRUE(remove_leftovers(directory_, Kept::kRemove).arenas == 0);
    std::filesystem::remove(path("x"));
  }
}

TEST_F(ArenaTest, ForeignFileIsLeftAlone) {
  std::ofstream(path("x")) << std::string(5000, 'q');
  const auto arena = make("x");
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.error().code, Code::kBrokenFile);
  EXPECT_EQ(std::filesystem::file_size(path("x")), 5000u);
}

TEST_F(ArenaTest, ReadyArenaIsNotOverwritten) {
  ASSERT_TRUE(make("x").ok());
  const auto again = make("x");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kUnavailable);
  EXPECT_TRUE(Arena::attach(directory_, "x")->verify().ok());
}

TEST_F(ArenaTest, OfManyCreatorsExactlyOneLoads) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> made{0}, refused{0}, other{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const auto arena = make("x");
        if (arena.ok())
          ++made;
        else if (arena.error().code == Code::kUnavailable)
          ++refused;
        else
          ++other;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(other, 0);
    EXPECT_TRUE(remove_arena(directory_, "x").ok());
  }
}

// Somebody removes the file between a creator's open and lock, again and again: what a creator
// gets must still have its name.
TEST_F(ArenaTest, CreatorNeverGetsAFileWithoutAName) {
  ArenaPlan plan;
  ASSERT_TRUE(plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 100}).ok());
  std::atomic<bool> done{false};
  std::thread remover([&] {
    while (!done) (void)remove_arena(directory_, "x");
  });
  int nameless = 0;
  for (int made = 0; made < 3000;) {
    const auto arena = Arena::create(directory_, "x", plan, {});
    if (!arena.ok()) continue;
    ++made;
    nameless += !is_named(arena->region().file(), path("x"));
  }
  done = true;
  remover.join();
  EXPECT_EQ(nameless, 0);
}

TEST_F(ArenaTest, NothingIsRemovedWhileSomebodyMapsIt) {
  {
    auto loader = make("x");
    ASSERT_TRUE(loader.ok());
    const auto reader = Arena::attach(directory_, "x");
    ASSERT_TRUE(reader.ok());
    *loader = std::move(*make("y"));  // the loader of x leaves, its reader stays
    EXPECT_EQ(remove_leftovers(directory_, Kept::kRemove).arenas, 0);
    const auto refused = remove_arena(directory_, "x");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kUnavailable);
    const auto listing = list_arenas(directory_);
    ASSERT_EQ(listing.size(), 2u);
    EXPECT_EQ(listing[0].name, "x");
    EXPECT_TRUE(listing[0].in_use && listing[1].in_use);
    EXPECT_EQ(listing[0].state, ArenaState::kReady);
    EXPECT_TRUE(reader->verify().ok());
  }
  EXPECT_FALSE(list_arenas(directory_)[0].in_use);
  EXPECT_EQ(remove_leftovers(directory_, Kept::kRemove).arenas, 2);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(ArenaTest, KeptArenasStayUnlessAsked) {
  ASSERT_TRUE(make("kept", true).ok());
  ASSERT_TRUE(make("other", false).ok());
  EXPECT_EQ(remove_leftovers(directory_, Kept::kStay).arenas, 1);
  EXPECT_TRUE(Arena::attach(directory_, "kept").ok());
  EXPECT_EQ(remove_leftovers(directory_, Kept::kRemove).arenas, 1);
}

TEST_F(ArenaTest, UnlinkedArenaLivesWithItsProcess) {
  ArenaPlan plan;
  ASSERT_TRUE(plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 100}).ok());
  auto arena = Arena::create(directory_, "x", plan, {});
  ASSERT_TRUE(arena.ok());
  arena->unlink_name();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  std::memset(arena->data(0), 9, 100);
  EXPECT_TRUE(arena->seal().ok());
  EXPECT_TRUE(arena->verify().ok());
}

TEST_F(ArenaTest, WhoLosesTheLockWhileSealingHasNoArena) {
  ArenaPlan plan;
  ASSERT_TRUE(plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 100}).ok());
  auto arena = Arena::create(directory_, "x", plan, {});
  ASSERT_TRUE(arena.ok());
  // Another process comes between the exclusive and the shared lock, and makes it its own.
  unlock(arena->region().file());
  const auto other = open_file(path("x"), O_RDWR);
  ASSERT_TRUE(other.ok() && try_lock(*other, Lock::kExclusive));
  const auto sealed = arena->seal();
  ASSERT_FALSE(sealed.ok());
  EXPECT_EQ(sealed.error().code, Code::kUnavailable);
  EXPECT_NE(sealed.error().message.find("another process took"), std::string::npos);
}

TEST_F(ArenaTest, BadTensorsAndNamesAreRefused) {
  ArenaPlan plan;
  const TensorSpec good = {.name = "t", .rows = 1, .row_length = 1, .bytes = 1};
  EXPECT_TRUE(plan.reserve(good).ok());
  EXPECT_FALSE(plan.reserve(good).ok());
  TensorSpec bad = good;
  bad.first_row = 7;
  EXPECT_TRUE(plan.reserve(bad).ok());
  bad.name = "";
  EXPECT_FALSE(plan.reserve(bad).ok());
  bad.name = std::string(96, 'n');
  EXPECT_FALSE(plan.reserve(bad).ok());
  bad.name = std::string("a\0b", 3);
  EXPECT_FALSE(plan.reserve(bad).ok());
  bad = {.name = "u", .rows = 1, .row_length = 1, .bytes = ~uint64_t{0}};
  EXPECT_FALSE(plan.reserve(bad).ok());
  EXPECT_EQ(plan.table().size(), 2u);
  for (const char* name : {"", ".x", "a/b", "..", "a b"}) {
    EXPECT_EQ(Arena::create(directory_, name, plan, {}).error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(Arena::attach(directory_, "absent").error().code, Code::kNotFound);
}

/// Runs `body` in a child with a tmpfs of `options` mounted on `directory` in a mount namespace of
/// its own. Returns its exit code; 77 when this is not permitted.
int with_tmpfs(const std::string& directory, const char* options,
               const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory.c_str(), "tmpfs", 0, options) != 0) {
      _exit(77);
    }
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(ArenaTest, FullTmpfsIsAnErrorNotASigbus) {
  const int code = with_tmpfs(directory_, "size=4m", [&] {
    ArenaPlan plan;
    if (!plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 8u << 20}).ok()) return 1;
    const auto arena = Arena::create(directory_, "x", plan, {});
    if (arena.ok()) return 2;
    if (arena.error().code != Code::kNoSpace) return 3;
    const std::string& message = arena.error().message;
    if (message.find(base::cat("reserve ", plan.file_bytes(), " bytes")) == std::string::npos) {
      return 4;
    }
    if (message.find("4194304 bytes are free") == std::string::npos) return 5;
    if (message.find("--arena-dir") == std::string::npos) return 6;
    if (!std::filesystem::is_empty(directory_)) return 7;  // nothing stays reserved
    // What fits is still fine, to the last byte.
    ArenaPlan small;
    if (!small.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 1u << 20}).ok()) return 8;
    auto fits = Arena::create(directory_, "x", small, {});
    if (!fits.ok()) return 9;
    std::memset(fits->data(0), 1, 1u << 20);
    return fits->seal().ok() ? 0 : 10;
  });
  if (code == 77) GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(code, 0);
}

TEST_F(ArenaTest, HugePagesAreReportedAsObtained) {
  const auto huge_share = [&](const char* options) {
    return with_tmpfs(directory_, options, [&] {
      ArenaPlan plan;
      if (!plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 7u << 20}).ok()) {
        return 1;
      }
      auto arena = Arena::create(directory_, "x", plan, {});
      if (!arena.ok()) return 2;
      std::memset(arena->data(0), 1, 7u << 20);
      const auto report = page_report(arena->region().data());
      if (!report.ok() || report->kernel_page_bytes == 0) return 3;
      if (report->resident_bytes < 7u << 20) return 4;
      return 100 + static_cast<int>(report->huge_bytes * 100 / arena->region().bytes());
    });
  };
  const int never = huge_share("size=64m,huge=never");
  if (never == 77) GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(never, 100);
  // A kernel without shmem huge pages refuses the option (77); memory may be too fragmented for
  // all.
  const int within_size = huge_share("size=64m,huge=within_size");
  if (within_size != 77) {
    EXPECT_GE(within_size, 100);
  }
}

}  // namespace
}  // namespace shm
