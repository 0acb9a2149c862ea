// Finding, awaiting, taking over and loading the arena of a rank's weights, with scripted contents.
#include "worker/weight_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/cat.h"
#include "base/rng.h"
#include "shm/arena_dir.h"
#include "tests/worker/weight_arena_fixture.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using base::Code;

TEST_F(WeightArenaTest, LoadedOnceAndFoundAgain) {
  expect(false, 0x11);
  expect(true, 0x11);
  EXPECT_EQ(files(), std::vector<std::string>{path()});
  options_.named = false;
  expect(true, 0x11);
  const auto weights = acquire();
  ASSERT_TRUE(weights.ok());
  EXPECT_STREQ(weights->arena.header().label, "model.gguf");
  EXPECT_EQ(weights->arena.header().content, (shm::Hash128{0x11, 9}));
}

TEST_F(WeightArenaTest, PrivateArenaLosesItsNameAtOnce) {
  options_.named = false;
  at_tensor_ = [&](int) { EXPECT_TRUE(files().empty()); };
  expect(false, 0x11);
  EXPECT_TRUE(files().empty());
  options_.directory.clear();
  expect(false, 0x11);
}

TEST_F(WeightArenaTest, LiveLoaderIsAwaited) {
  ASSERT_EQ(pipe(release_), 0);
  const pid_t loader = start_loader(1);
  uint64_t seen = 0;
  steps_.on_progress = [&](uint64_t done, uint64_t all) {
    EXPECT_EQ(all, plan_.data_bytes());
    if (done > seen) (void)!write(release_[1], "g", 1);
    seen = std::max(seen, done);
    return base::Status();
  };
  expect(true, 0x11);
  EXPECT_GE(seen, 2 * kTensorBytes);
  end(loader);
  expect(true, 0x11);  // a sealed arena survives whoever loaded it
}

TEST_F(WeightArenaTest, DeadLoaderIsReplacedWhileSomebodyWaits) {
  ASSERT_EQ(pipe(release_), 0);
  const pid_t loader = start_loader(2);
  const uint64_t used = bytes_used();
  steps_.on_progress = [&](uint64_t done, uint64_t) {
    if (done == 3 * kTensorBytes && loads_ == 0) kill(loader, SIGKILL);
    return base::Status();
  };
  fill_ = 0x22;
  expect(false, 0x22);
  waitpid(loader, nullptr, 0);
  EXPECT_EQ(files(), std::vector<std::string>{path()});
  EXPECT_EQ(bytes_used(), used);
}

TEST_F(WeightArenaTest, LoaderThatStandsStillIsGivenUp) {
  ASSERT_EQ(pipe(release_), 0);
  const pid_t loader = start_loader(0);
  options_.stall_max = 50'000'000;
  const auto weights = acquire();
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().code, Code::kTimeout);
  EXPECT_NE(weights.error().message.find("numoe shm ls"), std::string::npos);
  end(loader);
}

// A loader may be killed at any instruction; here before the first byte, at 20 places of the data,
// and with the file just made.
TEST_F(WeightArenaTest, KilledLoadersLeaveNothingInTheWay) {
  for (int round = 0; round < 20; round++) {
    const int place =
        static_cast<int>(base::philox({static_cast<uint32_t>(round), 0, 0, 0}, {7, 8})[0] %
                         (kTensors + 1)) -
        1;
    const pid_t child = fork();
    if (child == 0) {
      at_tensor_ = [&](int i) {
        if (i == place) kill(getpid(), SIGKILL);
      };
      if (place < 0)
        steps_.load = [](shm::Arena&) -> base::Result<shm::Hash128> {
          kill(getpid(), SIGKILL);
          return shm::Hash128{};
        };
      (void)acquire();
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(files(), std::vector<std::string>{path()}) << "killed at " << place;
    EXPECT_LE(bytes_used(), plan_.file_bytes() + 4096);
  }
  expect(false, 0x11);
  expect(true, 0x11);
}

TEST_F(WeightArenaTest, RubbishOfThatNameIsReplaced) {
  const std::pair<const char*, std::function<void()>> kinds[] = {
      {"zero length", [&] { std::ofstream file(path()); }},
      {"zeros", [&] { std::ofstream(path()) << std::string(9000, '\0'); }},
      {"foreign", [&] { std::ofstream(path()) << std::string(5000, 'q'); }},
      {"a short one", [&] { std::ofstream(path()) << "NUMOEARN"; }},
      {"a link", [&] { fs::create_symlink("/etc/passwd", path()); }},
      {"a pipe", [&] { ASSERT_EQ(mkfifo(path().c_str(), 0600), 0); }},
      {"a truncated one",
       [&] {
         expect(false, 0x11);
         fs::resize_file(path(), 8192);
       }},
      {"a damaged header",
       [&] {
         expect(false, 0x11);
         flip(64);
       }},
      {"a damaged table",
       [&] {
         expect(false, 0x11);
         flip(sizeof(shm::ArenaHeader) + 120);
       }},
      {"another version",
       [&] {
         expect(false, 0x11);
         flip(8);
       }},
  };
  for (const auto& [kind, make] : kinds) {
    SCOPED_TRACE(kind);
    make();
    expect(false, 0x11);
    expect(true, 0x11);
    EXPECT_EQ(files(), std::vector<std::string>{path()});
    fs::remove(path());
    // One who wants no named arena leaves it alone.
    make();
    options_.named = false;
    expect(false, 0x11);
    EXPECT_EQ(files(), std::vector<std::string>{path()});
    options_.named = true;
    fs::remove(path());
  }
  EXPECT_TRUE(fs::exists("/etc/passwd"));
}

TEST_F(WeightArenaTest, FolderOfThatNameIsLeftAlone) {
  fs::create_directory(path());
  expect(false, 0x11);
  EXPECT_EQ(files(), (std::vector<std::string>{path(2), path()}));
  expect(true, 0x11);
}

TEST_F(WeightArenaTest, WhatCannotBeOpenedNowIsNotRemoved) {
  expect(false, 0x11);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = acquire();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("Too many open files"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(files(), std::vector<std::string>{path()});
  expect(true, 0x11);
}

TEST_F(WeightArenaTest, ChangedFileIsNeverReused) {
  expect(false, 0x11);
  options_.arena.identity.source = {5, 6};  // same name, same size, other times
  fill_ = 0x22;
  expect(false, 0x22);  // nobody knows the content: loaded
  EXPECT_EQ(files(), std::vector<std::string>{path()});

  options_.arena.identity.source = {7, 8};
  fill_ = 0x33;
  steps_.hash = [&] { return shm::Hash128{0x33, 9}; };
  expect(false, 0x33);  // hashed, and different
  EXPECT_EQ(files(), std::vector<std::string>{path()});
}

TEST_F(WeightArenaTest, CopiedFileOfEqualContentIsRecognised) {
  expect(false, 0x11);
  options_.arena.identity.source = {5, 6};
  int hashed = 0;
  steps_.hash = [&] {
    hashed++;
    return shm::Hash128{0x11, 9};
  };
  expect(true, 0x11);
  expect(true, 0x11);
  EXPECT_EQ(hashed, 1);  // the header says now that this file holds the same
  // While others use it the header stays as it is.
  const auto user = acquire();
  ASSERT_TRUE(user.ok());
  options_.arena.identity.source = {7, 8};
  expect(true, 0x11);
  expect(true, 0x11);
  EXPECT_EQ(hashed, 3);
}

TEST_F(WeightArenaTest, UnknownContentIsNeverEqual) {
  steps_.load = [&](shm::Arena& arena) -> base::Result<shm::Hash128> {
    (void)fill(arena);
    return shm::Hash128{};
  };
  steps_.hash = [] { return shm::Hash128{}; };
  expect(false, 0x11);
  options_.arena.identity.source = {5, 6};
  expect(false, 0x11);
}

TEST_F(WeightArenaTest, ArenaInUseWithOtherContentIsLeftAlone) {
  const auto user = acquire();
  ASSERT_TRUE(user.ok());
  options_.arena.identity.source = {5, 6};
  fill_ = 0x22;
  expect(false, 0x22);
  EXPECT_EQ(files(), (std::vector<std::string>{path(2), path()}));
  EXPECT_EQ(user->arena.data(0)[0], std::byte{0x11});
  EXPECT_TRUE(user->arena.verify().ok());
  expect(true, 0x22);
}

// Also if the files have the same content: it was packed in another way, or lies elsewhere.
TEST_F(WeightArenaTest, OtherNodePlanOrArithmeticIsAnotherArena) {
  expect(false, 0x11);
  steps_.hash = [this] { return shm::Hash128{static_cast<uint64_t>(fill_) - 0x11, 9}; };
  const std::function<void()> changes[] = {
      [&] { options_.arena.identity.numerics_version++; },
      [&] { options_.arena.identity.kernel_layout++; },
      [&] { options_.arena.identity.plan_id++; },
      [&] { options_.arena.identity.model++; },
      [&] { options_.arena.node = 0; },
      [&] {
        ASSERT_TRUE(plan_.reserve({.name = "more", .rows = 1, .row_length = 1, .bytes = 1}).ok());
      },
  };
  for (const auto& change : changes) {
    change();
    fill_ += 0x11;
    expect(false, fill_);
    expect(true, fill_);
    EXPECT_EQ(files(), std::vector<std::string>{path()});
  }
}

TEST_F(WeightArenaTest, FailedLoadLeavesNothing) {
  steps_.load = [](shm::Arena&) -> base::Result<shm::Hash128> {
    return base::Error{Code::kBrokenFile, "the file is damaged"};
  };
  const auto weights = acquire();
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.error().message, "the file is damaged");
  EXPECT_TRUE(files().empty());
}

TEST_F(WeightArenaTest, OfManyStartsOneLoads) {
  for (int round = 0; round < 5; round++) {
    std::atomic<int> loaded{0}, attached{0};
    std::vector<std::thread> threads;
    std::vector<std::optional<WeightArena>> kept(6);
    for (std::optional<WeightArena>& own : kept) {
      threads.emplace_back([&] {
        auto weights = acquire();
        if (!weights.ok()) return;
        ++(weights->attached ? attached : loaded);
        own.emplace(std::move(*weights));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(loaded, 1);
    EXPECT_EQ(attached, 5);
    EXPECT_EQ(files(), std::vector<std::string>{path()});
    EXPECT_LE(bytes_used(), plan_.file_bytes() + 4096);
    // The last to let go removes it, and only the last.
    for (size_t i = 0; i < kept.size(); i++) {
      EXPECT_EQ(kept[i]->arena.unlink_if_last(), i + 1 == kept.size());
      kept[i].reset();
    }
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(WeightArenaTest, UnusedWeightsGoUnlessTheyShallStay) {
  expect(false, 0x11);
  std::ofstream(directory_ + "/w-1-2-7of8.arena") << "half";
  std::ofstream(directory_ + "/w-1-3-0of1.arena") << "of another plan";
  {
    const auto user = acquire();
    ASSERT_TRUE(user.ok());
    EXPECT_EQ(remove_unused_weights(directory_, "w-1-2-"), 1);
    EXPECT_TRUE(fs::exists(path()));
  }
  EXPECT_EQ(remove_unused_weights(directory_, "w-1-2-"), 1);
  EXPECT_EQ(files(), std::vector<std::string>{directory_ + "/w-1-3-0of1.arena"});

  expect(false, 0x11);
  options_.arena.keep = true;
  expect(true, 0x11);  // from now on it stays
  EXPECT_EQ(remove_unused_weights(directory_, "w-1-2-"), 0);
  auto last = acquire();
  ASSERT_TRUE(last.ok());
  EXPECT_FALSE(last->arena.unlink_if_last());
  EXPECT_TRUE(fs::exists(path()));
}

/// Runs `body` in a child with a tmpfs of `bytes` mounted on `directory` in a mount namespace of
/// its own. Returns its exit code; 77 when this is not permitted.
int with_tmpfs(const std::string& directory, uint64_t bytes, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string options = base::cat("size=", bytes);
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory.c_str(), "tmpfs", 0, options.c_str()) != 0) {
      _exit(77);
    }
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Somebody fills the file system after its space was looked at: an error, no SIGBUS.
TEST_F(WeightArenaTest, SpaceTakenByOthersIsAnErrorAndLeavesNothing) {
  const int code = with_tmpfs(directory_, plan_.file_bytes() + 65'536, [&] {
    {
      const auto file = shm::open_file(directory_ + "/others", O_RDWR | O_CREAT);
      if (!file.ok() || fallocate(file->fd(), 0, 0, 131'072) != 0) return 1;
    }
    for (const bool named : {true, false}) {
      options_.named = named;
      const auto weights = acquire();
      if (weights.ok() || weights.error().code != Code::kNoSpace) return 2;
      const std::string& message = weights.error().message;
      if (message.find(base::cat("reserve ", plan_.file_bytes())) == std::string::npos) return 3;
      if (message.find("are free") == std::string::npos) return 4;
      if (files() != std::vector<std::string>{directory_ + "/others"}) return 5;
    }
    fs::remove(directory_ + "/others");
    return acquire().ok() ? 0 : 6;
  });
  if (code == 77) GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace worker
