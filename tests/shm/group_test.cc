// Groups of ranks that are processes: meeting, exchange, and what the others see when one dies.
#include "shm/group.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <thread>

#include "base/cat.h"
#include "base/clock.h"
#include "base/rng.h"

namespace shm {
namespace {

using base::Wait;

/// A directory of its own for every test, gone afterwards.
class GroupTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-group-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  GroupOptions options(int rank, int ranks) const {
    return {.directory = directory_,
            .id = "test-1",
            .rank = rank,
            .shape = {ranks, 1, 4096},
            .record_bytes_max = 1000,
            .wait = {.spin_pauses = 50, .slice_ns = 20'000'000},
            .join_timeout_ns = 20'000'000'000};
  }
  bool is_empty() const { return std::filesystem::is_empty(directory_); }

  /// Runs `body` in a child process whose exit code is its result.
  pid_t start(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    return child;
  }
  int exit_code(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string directory_;
};

uint32_t word_of(uint64_t sequence, int rank, size_t index) {
  return base::philox({static_cast<uint32_t>(sequence), static_cast<uint32_t>(rank),
                       static_cast<uint32_t>(index), 0},
                      {3, 4})[0];
}

/// 0: all gathers were right; 100 + Wait: how one ended; 1: a wrong word.
int gather(ShmExchange& exchange, uint64_t count, std::atomic<uint64_t>* progress = nullptr) {
  const int rank = exchange.rank();
  for (uint64_t sequence = 0; sequence < count; ++sequence) {
    auto* out = reinterpret_cast<uint32_t*>(exchange.outgoing(sequence));
    for (size_t i = 0; i < 64; ++i) out[i] = word_of(sequence, rank, i);
    const Wait wait = exchange.arrive_and_wait(sequence, 256);
    if (wait != Wait::kOk) return 100 + static_cast<int>(wait);
    for (int peer = 0; peer < exchange.rank_count(); ++peer) {
      const auto* in = reinterpret_cast<const uint32_t*>(exchange.incoming(sequence, peer));
      for (size_t i = 0; i < 64; ++i) {
        if (in[i] != word_of(sequence, peer, i)) return 1;
      }
    }
    if (progress != nullptr) progress->store(sequence, std::memory_order_relaxed);
  }
  return 0;
}

TEST_F(GroupTest, ProcessesGatherAndLeaveNothing) {
  for (const int ranks : {1, 2, 4}) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      children.push_back(start([&] {
        auto group = Group::join(options(rank, ranks));
        return group.ok() ? gather((*group)->exchange(), 3000) : 2;
      }));
    }
    for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
    EXPECT_TRUE(is_empty());
  }
}

TEST_F(GroupTest, NamesAreGoneOnceAllHaveMet) {
  const pid_t other = start([&] {
    auto group = Group::join(options(1, 2));
    // Rank 0 removes the names before it gathers.
    return group.ok() && gather((*group)->exchange(), 1) == 0 && is_empty() ? 0 : 1;
  });
  auto group = Group::join(options(0, 2));
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_TRUE(is_empty());
  EXPECT_EQ(gather((*group)->exchange(), 1), 0);
  EXPECT_EQ(exit_code(other), 0);
}

// kill -9 at 20 different moments of the run: every other rank returns kPeerLost, soon.
TEST_F(GroupTest, KilledRankIsAPeerLostForAllOthers) {
  constexpr int kRanks = 3;
  auto shared = Region::anonymous(4096);
  ASSERT_TRUE(shared.ok());
  auto* progress = new (shared->data()) std::atomic<uint64_t>{0};
  for (uint32_t round = 0; round < 20; ++round) {
    progress->store(0);
    std::vector<pid_t> children;
    for (int rank = 0; rank < kRanks; ++rank) {
      children.push_back(start([&] {
        auto group = Group::join(options(rank, kRanks));
        if (!group.ok()) return 2;
        return gather((*group)->exchange(), uint64_t{1} << 40, rank == 0 ? progress : nullptr);
      }));
    }
    const uint64_t moment = base::philox({round, 0, 0, 0}, {9, 9})[0] % 2000;
    while (progress->load(std::memory_order_relaxed) < moment) std::this_thread::yield();
    const size_t victim = round % kRanks;
    kill(children[victim], SIGKILL);
    const base::TimeNs killed = base::SteadyClock().now();
    EXPECT_EQ(exit_code(children[victim]), -SIGKILL);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      if (rank != victim) {
        EXPECT_EQ(exit_code(children[rank]), 100 + static_cast<int>(Wait::kPeerLost));
      }
    }
    // Not a measurement: far from the backstop of 120 s is enough.
    EXPECT_LT(base::SteadyClock().now() - killed, 30'000'000'000);
    EXPECT_TRUE(is_empty());
  }
}

TEST_F(GroupTest, DeathWhileMeetingIsAnErrorAndLeavesNothing) {
  // Rank 1 dies as soon as it has shown its files; rank 2 never comes.
  const pid_t victim = start([&] {
    (void)Group::join(options(1, 3));
    return 0;
  });
  const pid_t killer = start([&] {
    while (!std::filesystem::exists(base::cat(directory_, "/group-test-1/x.1"))) {
      std::this_thread::yield();
    }
    kill(victim, SIGKILL);
    return 0;
  });
  const auto group = Group::join(options(0, 3));
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, base::Code::kPeerLost) << group.error().message;
  EXPECT_NE(group.error().message.find("rank 1 of 3"), std::string::npos);
  EXPECT_EQ(exit_code(victim), -SIGKILL);
  EXPECT_EQ(exit_code(killer), 0);
  EXPECT_TRUE(is_empty());
}

TEST_F(GroupTest, MissingRankIsATimeoutThatNamesIt) {
  GroupOptions alone = options(0, 2);
  alone.join_timeout_ns = 30'000'000;
  const auto group = Group::join(alone);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, base::Code::kTimeout);
  EXPECT_NE(group.error().message.find("rank 1 of 2"), std::string::npos);
  EXPECT_TRUE(is_empty());
}

TEST_F(GroupTest, OtherShapeIsRefused) {
  GroupOptions other = options(1, 2);
  other.shape.slice_bytes_max = 8192;
  base::Code of_leader = base::Code::kSystem;
  std::thread leader([&] {
    const auto group = Group::join(options(0, 2));
    if (!group.ok()) of_leader = group.error().code;
  });
  const auto group = Group::join(other);
  leader.join();
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, base::Code::kUnsupported) << group.error().message;
  EXPECT_NE(group.error().message.find("8192"), std::string::npos);
  EXPECT_EQ(of_leader, base::Code::kPeerLost);
  EXPECT_TRUE(is_empty());
}

TEST_F(GroupTest, TheSameRankTwiceIsRefused) {
  GroupOptions first = options(1, 2);
  first.join_timeout_ns = 200'000'000;
  std::thread waiting([&] { (void)Group::join(first); });
  const std::string life = base::cat(directory_, "/group-test-1/life.1");
  while (!std::filesystem::exists(life)) std::this_thread::yield();
  const auto second = Group::join(first);
  waiting.join();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, base::Code::kUnavailable) << second.error().message;
}

TEST_F(GroupTest, BadIdIsRefused) {
  for (const char* id : {"", "../x", "a/b", "a b", "."}) {
    GroupOptions bad = options(0, 1);
    bad.id = id;
    const auto group = Group::join(bad);
    ASSERT_FALSE(group.ok()) << id;
    EXPECT_EQ(group.error().code, base::Code::kInvalidArgument);
  }
}

TEST_F(GroupTest, DeadGroupsAreRemovedAndLivingOnesStay) {
  // A dead one: killed while it waits for a rank that never comes.
  GroupOptions dead = options(0, 2);
  dead.id = "dead";
  const pid_t victim = start([&] {
    (void)Group::join(dead);
    return 0;
  });
  const std::string dead_file = base::cat(directory_, "/group-dead/x.0");
  while (!std::filesystem::exists(dead_file)) std::this_thread::yield();
  // A living one, which waits the same way.
  GroupOptions living = options(0, 2);
  living.id = "living";
  living.join_timeout_ns = 60'000'000'000;
  const pid_t waiting = start([&] {
    (void)Group::join(living);
    return 0;
  });
  const std::string living_file = base::cat(directory_, "/group-living/x.0");
  while (!std::filesystem::exists(living_file)) std::this_thread::yield();
  std::filesystem::create_directory(base::cat(directory_, "/somebody-elses"));

  EXPECT_EQ(remove_dead_groups(directory_), 0);
  kill(victim, SIGKILL);
  EXPECT_EQ(exit_code(victim), -SIGKILL);
  EXPECT_EQ(remove_dead_groups(directory_), 1);
  EXPECT_FALSE(std::filesystem::exists(base::cat(directory_, "/group-dead")));
  EXPECT_TRUE(std::filesystem::exists(living_file));
  EXPECT_TRUE(std::filesystem::exists(base::cat(directory_, "/somebody-elses")));
  kill(waiting, SIGKILL);
  EXPECT_EQ(exit_code(waiting), -SIGKILL);
  EXPECT_EQ(remove_dead_groups(directory_), 1);
}

TEST_F(GroupTest, RegionsArePrivateToTheUser) {
  GroupOptions alone = options(0, 2);
  alone.join_timeout_ns = 60'000'000'000;
  const pid_t waiting = start([&] {
    (void)Group::join(alone);
    return 0;
  });
  const std::string file = base::cat(directory_, "/group-test-1/x.0");
  while (!std::filesystem::exists(file)) std::this_thread::yield();
  struct stat status;
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(base::cat(directory_, "/group-test-1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  kill(waiting, SIGKILL);
  exit_code(waiting);
}

TEST_F(GroupTest, StepRecordsReachFollowersInOtherProcesses) {
  const auto record_of = [](uint64_t sequence) {
    std::vector<std::byte> record((sequence * 37) % 1001);
    for (size_t i = 0; i < record.size(); ++i) record[i] = std::byte(sequence + i);
    return record;
  };
  constexpr uint64_t kSteps = 2000;
  const auto follow = [&](int rank) {
    auto group = Group::join(options(rank, 3));
    if (!group.ok()) return 2;
    std::vector<std::byte> record;
    for (uint64_t sequence = 0; sequence < kSteps; ++sequence) {
      Wait wait;
      do {
        wait = (*group)->board().read(sequence, 1'000'000, record);
      } while (wait == Wait::kTimeout);
      if (wait != Wait::kOk || record != record_of(sequence)) return 1;
    }
    // The leader leaves without a word.
    Wait wait;
    do {
      wait = (*group)->board().read(kSteps, 1'000'000, record);
    } while (wait == Wait::kTimeout);
    return 100 + static_cast<int>(wait);
  };
  const pid_t one = start([&] { return follow(1); });
  const pid_t two = start([&] { return follow(2); });
  {
    auto group = Group::join(options(0, 3));
    ASSERT_TRUE(group.ok()) << group.error().message;
    for (uint64_t sequence = 0; sequence < kSteps; ++sequence) {
      ASSERT_EQ((*group)->board().publish(sequence, record_of(sequence)), Wait::kOk);
    }
  }
  EXPECT_EQ(exit_code(one), 100 + static_cast<int>(Wait::kPeerLost));
  EXPECT_EQ(exit_code(two), 100 + static_cast<int>(Wait::kPeerLost));
}

}  // namespace
}  // namespace shm
