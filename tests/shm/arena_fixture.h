// A directory of its own for every test, and arenas in it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "base/cat.h"
#include "base/rng.h"
#include "shm/arena.h"
#include "shm/arena_dir.h"

namespace shm {

class ArenaTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-arena-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static ArenaIdentity identity() {
    ArenaIdentity identity;
    identity.source = {.low = 11, .high = 12};
    identity.plan_id = 13;
    identity.slice_index = 1;
    identity.slice_count = 2;
    identity.kernel_layout = 14;
    return identity;
  }
  std::string path(const std::string& name) const {
    return base::cat(directory_, "/", name, ".arena");
  }

  /// Three tensors of odd sizes, random bytes, sealed.
  base::Result<Arena> make(const std::string& name, bool keep = false) {
    ArenaPlan plan;
    for (uint64_t i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const uint64_t offset, plan.reserve({.name = base::cat("blk.", i, ".weight"),
                                                            .type = static_cast<uint32_t>(i),
                                                            .layout = 2,
                                                            .rows = 32 + i,
                                                            .row_length = 256,
                                                            .first_row = 64,
                                                            .bytes = 1000 + 77 * i}));
      EXPECT_EQ(offset % kTensorAlignment, 0u);
    }
    ASSIGN_OR_RETURN(Arena arena,
                     Arena::create(directory_, name, plan, {.identity = identity(), .keep = keep}));
    for (const TensorEntry& entry : arena.tensors()) {
      for (uint64_t i = 0; i < entry.bytes; ++i) arena.data(entry.offset)[i] = byte(entry, i);
      arena.add_progress(entry.bytes);
    }
    RETURN_IF_ERROR(arena.seal({.low = 21, .high = 22}));
    return arena;
  }
  static std::byte byte(const TensorEntry& entry, uint64_t i) {
    return std::byte(base::philox({static_cast<uint32_t>(i), entry.type, 0, 0}, {5, 6})[0]);
  }

  /// Starts loading "x" in a child and kills it there, with 500 bytes of progress.
  void die_while_loading() {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      ArenaPlan plan;
      (void)plan.reserve({.name = "t", .rows = 1, .row_length = 1, .bytes = 5000});
      auto arena = Arena::create(directory_, "x", plan, {});
      if (!arena.ok()) _exit(1);
      std::memset(arena->data(0), 0xee, 500);
      arena->add_progress(500);
      (void)!write(ready[1], "r", 1);
      ::pause();
      _exit(0);
    }
    char word;
    ASSERT_EQ(read(ready[0], &word, 1), 1);
    // It lives: nobody else may have the arena, and everybody sees how far it is.
    const auto attached = Arena::attach(directory_, "x");
    ASSERT_FALSE(attached.ok());
    EXPECT_EQ(attached.error().code, base::Code::kUnavailable);
    EXPECT_NE(attached.error().message.find("500 of 5000"), std::string::npos)
        << attached.error().message;
    const auto second = make("x");
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, base::Code::kUnavailable);
    EXPECT_EQ(remove_leftovers(directory_, Kept::kRemove).arenas, 0);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
  }

  std::string directory_;
};

}  // namespace shm
