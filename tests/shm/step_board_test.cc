// The step board with leader and followers as threads; group_test.cc has processes.
#include "shm/step_board.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "shm/local_group.h"

namespace shm {
namespace {

using base::Wait;

std::unique_ptr<LocalGroup> make(int ranks, uint64_t first = 0,
                                 base::TimeNs timeout = 60'000'000'000) {
  auto group =
      LocalGroup::create({.shape = {ranks, 1, 64},
                          .record_bytes_max = 300,
                          .wait = {.spin_pauses = 20, .slice_ns = 2'000'000, .timeout_ns = timeout},
                          .first_sequence = first});
  EXPECT_TRUE(group.ok());
  return std::move(*group);
}

std::vector<std::byte> record_of(uint64_t sequence) {
  std::vector<std::byte> record((sequence * 53) % 301);
  for (size_t i = 0; i < record.size(); ++i) record[i] = std::byte(sequence * 7 + i);
  return record;
}

void check_records(int ranks, uint64_t first, uint64_t count) {
  const auto group = make(ranks, first);
  std::atomic<int> failed{0};
  std::vector<std::thread> followers;
  for (int rank = 1; rank < ranks; ++rank) {
    followers.emplace_back([&, rank] {
      std::vector<std::byte> record;
      for (uint64_t sequence = first; sequence != first + count; ++sequence) {
        Wait wait;
        do {
          wait = group->board(rank).read(sequence, 500'000, record);
        } while (wait == Wait::kTimeout);
        if (wait != Wait::kOk || record != record_of(sequence)) {
          ++failed;
          return group->board(rank).abort();
        }
      }
    });
  }
  for (uint64_t sequence = first; sequence != first + count; ++sequence) {
    if (group->board(0).publish(sequence, record_of(sequence)) != Wait::kOk) {
      ++failed;
      break;
    }
  }
  for (std::thread& follower : followers) follower.join();
  EXPECT_EQ(failed, 0);
}

TEST(StepBoard, EveryFollowerReadsEveryRecord) {
  check_records(4, 0, 2000);
}
TEST(StepBoard, LeaderAlone) {
  check_records(1, 0, 100);
}
TEST(StepBoard, SequenceWrapsIn32Bits) {
  check_records(2, (uint64_t{1} << 32) - 20, 40);
}

TEST(StepBoard, NoRecordIsATimeoutAndComesLater) {
  const auto group = make(2);
  std::vector<std::byte> record;
  EXPECT_EQ(group->board(1).read(0, 100'000, record), Wait::kTimeout);
  EXPECT_EQ(group->board(1).read(0, 0, record), Wait::kTimeout);
  EXPECT_EQ(group->board(0).publish(0, record_of(5)), Wait::kOk);
  EXPECT_EQ(group->board(1).read(0, 100'000, record), Wait::kOk);
  EXPECT_EQ(record, record_of(5));
}

// Two records fit; the third waits for a follower that does not read.
TEST(StepBoard, LeaderDoesNotOverwriteWhatIsUnread) {
  const auto group = make(2, 0, 5'000'000);
  EXPECT_EQ(group->board(0).publish(0, record_of(1)), Wait::kOk);
  EXPECT_EQ(group->board(0).publish(1, record_of(2)), Wait::kOk);
  EXPECT_EQ(group->board(0).publish(2, record_of(3)), Wait::kTimeout);
  std::vector<std::byte> record;
  EXPECT_EQ(group->board(1).read(0, 1'000'000, record), Wait::kOk);
  EXPECT_EQ(record, record_of(1));
  EXPECT_EQ(group->board(0).publish(2, record_of(3)), Wait::kOk);
  EXPECT_EQ(group->board(1).read(1, 1'000'000, record), Wait::kOk);
  EXPECT_EQ(record, record_of(2));
}

TEST(StepBoard, AbortEndsWaitsOfBoardAndExchange) {
  const auto group = make(2);
  std::thread follower([&] {
    std::vector<std::byte> record;
    Wait wait;
    do {
      wait = group->board(1).read(0, 60'000'000'000, record);
    } while (wait == Wait::kTimeout);
    EXPECT_EQ(wait, Wait::kAborted);
  });
  group->board(0).abort();
  follower.join();
  EXPECT_EQ(group->board(0).publish(0, {}), Wait::kAborted);
  EXPECT_EQ(group->exchange(1).arrive_and_wait(0, 64), Wait::kAborted);
}

TEST(StepBoardDeathTest, RefusesOurBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto group = make(2);
  const std::vector<std::byte> long_record(301);
  EXPECT_DEATH((void)group->board(0).publish(0, long_record), "a record of 301 bytes");
  EXPECT_DEATH((void)group->board(0).publish(1, {}), "record 1 is not the next");
  EXPECT_DEATH((void)group->board(1).publish(0, {}), "rank 1 is no leader");
}

}  // namespace
}  // namespace shm
