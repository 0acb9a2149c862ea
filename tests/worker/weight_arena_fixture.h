// A directory of weight arenas and scripted loaders of small ones, in this process and in others.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/cat.h"
#include "worker/weight_arena.h"

namespace worker {

inline constexpr uint64_t kTensorBytes = 100'000;
inline constexpr int kTensors = 4;

class WeightArenaTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-weights-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    options_.directory = directory_;
    options_.name = "w-1-2-0of1";
    options_.private_directory = directory_;
    options_.private_name = "private";
    options_.named = true;
    options_.arena.identity.model = 1;
    options_.arena.identity.source = {3, 4};
    options_.arena.identity.plan_id = 2;
    options_.arena.label = "model.gguf";
    for (int i = 0; i < kTensors; i++) {
      ASSERT_TRUE(
          plan_
              .reserve(
                  {.name = base::cat("t", i), .rows = 32, .row_length = 64, .bytes = kTensorBytes})
              .ok());
    }
    steps_.load = [this](shm::Arena& arena) { return fill(arena); };
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  /// What a loader does; the content is `fill_`.
  base::Result<shm::Hash128> fill(shm::Arena& arena) {
    loads_++;
    for (int i = 0; i < kTensors; i++) {
      std::memset(arena.data(plan_.table()[static_cast<size_t>(i)].offset), fill_, kTensorBytes);
      arena.add_progress(kTensorBytes);
      if (at_tensor_) at_tensor_(i);
    }
    return shm::Hash128{static_cast<uint64_t>(fill_), 9};
  }

  base::Result<WeightArena> acquire() { return acquire_weights(options_, plan_, steps_); }
  /// Acquires, and expects these bytes, found loaded or not.
  void expect(bool attached, int bytes) {
    const int before = loads_;
    auto weights = acquire();
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->attached, attached);
    EXPECT_EQ(loads_ - before, attached ? 0 : 1);
    EXPECT_EQ(weights->arena.state(), shm::ArenaState::kReady);
    EXPECT_TRUE(weights->arena.verify().ok());
    for (const uint64_t at : {uint64_t{0}, 3 * kTensorBytes}) {
      EXPECT_EQ(weights->arena.data(at)[0], std::byte(bytes)) << at;
    }
  }

  /// Turns the bits of a byte of the arena's file.
  void flip(uint64_t at) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(~byte));
  }

  std::string path(int n = 1) const {
    return base::cat(directory_, "/", options_.name, n == 1 ? "" : base::cat(".", n), ".arena");
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  }
  uint64_t bytes_used() const {
    uint64_t bytes = 0;
    for (const std::string& file : files()) {
      struct stat status = {};
      if (lstat(file.c_str(), &status) == 0) bytes += static_cast<uint64_t>(status.st_blocks) * 512;
    }
    return bytes;
  }

  /// A process that loads, says so before tensor `at`, and stays there.
  pid_t start_loader(int at) {
    int said[2];
    EXPECT_EQ(pipe(said), 0);
    const pid_t child = fork();
    if (child == 0) {
      at_tensor_ = [&](int i) {
        if (i != at) return;
        (void)!write(said[1], "r", 1);
        char word;
        while (read(release_[0], &word, 1) < 0) {
        }
      };
      const auto weights = acquire();
      if (!weights.ok() || weights->attached) _exit(1);
      (void)!write(said[1], "d", 1);
      pause();
    }
    char word = 0;
    EXPECT_EQ(read(said[0], &word, 1), 1);
    close(said[0]);
    close(said[1]);
    return child;
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  std::string directory_;
  WeightArenaOptions options_;
  shm::ArenaPlan plan_;
  WeightSteps steps_;
  std::atomic<int> loads_{0};
  int fill_ = 0x11;
  std::function<void(int)> at_tensor_;
  int release_[2] = {-1, -1};
};

}  // namespace worker
