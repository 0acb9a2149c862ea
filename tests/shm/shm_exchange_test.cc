// The exchange with ranks as threads over one mapping; group_test.cc has ranks as processes.
#include "shm/shm_exchange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "shm/local_group.h"

namespace shm {
namespace {

using base::Wait;

/// Short slices, so that tests of losses do not wait; spins that let other threads run.
WaitOptions test_wait() {
  return {.spin_pauses = 50, .slice_ns = 2'000'000, .timeout_ns = 60'000'000'000};
}

/// A word that depends on everything that could be mixed up.
uint32_t word_of(uint64_t sequence, int rank, size_t index) {
  return base::philox({static_cast<uint32_t>(sequence), static_cast<uint32_t>(rank),
                       static_cast<uint32_t>(index), 7},
                      {1, 2})[0];
}

void run_threads(const ShmExchangeShape& shape, const std::function<void(int, int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int thread = 0; thread < shape.threads; ++thread) {
      threads.emplace_back([&body, rank, thread] { body(rank, thread); });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

/// Gathers of random words, sizes that change, every thread checks every rank's slice.
void check_gathers(const ShmExchangeShape& shape, uint64_t first, uint64_t count,
                   const WaitOptions& wait = test_wait()) {
  auto group = LocalGroup::create(
      {.shape = shape, .record_bytes_max = 64, .wait = wait, .first_sequence = first});
  ASSERT_TRUE(group.ok()) << group.error().message;
  const size_t words_max = shape.slice_bytes_max / sizeof(uint32_t);
  std::atomic<uint64_t> wrong{0}, failed{0};
  run_threads(shape, [&](int rank, int thread) {
    ShmExchange& exchange = (*group)->exchange(rank);
    const auto threads = static_cast<size_t>(shape.threads);
    for (uint64_t sequence = first; sequence != first + count; ++sequence) {
      const size_t words = 1 + (sequence * 31) % words_max;
      auto* out = reinterpret_cast<uint32_t*>(exchange.outgoing(sequence));
      for (size_t i = static_cast<size_t>(thread); i < words; i += threads) {
        out[i] = word_of(sequence, rank, i);
      }
      if (exchange.arrive_and_wait(sequence, words * sizeof(uint32_t)) != Wait::kOk) {
        ++failed;
        return;
      }
      for (int peer = 0; peer < shape.ranks; ++peer) {
        const auto* in = reinterpret_cast<const uint32_t*>(exchange.incoming(sequence, peer));
        for (size_t i = 0; i < words; ++i) wrong += in[i] != word_of(sequence, peer, i);
      }
    }
  });
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ((*group)->exchange(0).stats().gathers, count);
}

TEST(ShmExchange, OneRankOneThread) {
  check_gathers({1, 1, 256}, 0, 2000);
}
TEST(ShmExchange, OneRankIsABarrierOfItsThreads) {
  check_gathers({1, 3, 256}, 0, 2000);
}
TEST(ShmExchange, TwoRanks) {
  check_gathers({2, 1, 512}, 0, 4000);
}
TEST(ShmExchange, TwoRanksTwoThreads) {
  check_gathers({2, 2, 512}, 1, 3000);
}
TEST(ShmExchange, ManyMoreThreadsThanCores) {
  check_gathers({5, 3, 128}, 0, 300);
}
TEST(ShmExchange, SequenceWrapsIn32Bits) {
  check_gathers({2, 1, 64}, (uint64_t{1} << 32) - 50, 100);
  check_gathers({2, 1, 64}, (uint64_t{1} << 31) - 50, 100);
}

// Nobody spins and a sleep has no end but a wake-up: one lost wake-up and the backstop reports it.
TEST(ShmExchange, EverySleeperIsWoken) {
  check_gathers({2, 2, 64}, 0, 3000,
                {.spin_pauses = 0, .slice_ns = 60'000'000'000, .timeout_ns = 60'000'000'000});
}

TEST(ShmExchange, SlicesAreAlignedAndApart) {
  auto group = LocalGroup::create({.shape = {3, 1, 100}, .record_bytes_max = 1});
  ASSERT_TRUE(group.ok());
  ShmExchange& exchange = (*group)->exchange(1);
  for (uint64_t sequence = 0; sequence < 4; ++sequence) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(exchange.outgoing(sequence)) % 64, 0u);
    EXPECT_EQ(exchange.outgoing(sequence), exchange.incoming(sequence, 1));
    EXPECT_GE(std::abs(exchange.outgoing(sequence) - exchange.outgoing(sequence + 1)), 100);
  }
  EXPECT_EQ(exchange.outgoing(0), exchange.outgoing(2));
}

TEST(ShmExchange, AbortEndsPresentAndFutureWaits) {
  const ShmExchangeShape shape = {3, 2, 64};
  auto group = LocalGroup::create({.shape = shape, .record_bytes_max = 1, .wait = test_wait()});
  ASSERT_TRUE(group.ok());
  std::atomic<int> aborted{0};
  run_threads(shape, [&](int rank, int thread) {
    // One thread of rank 2 never arrives; it aborts instead.
    if (rank == 2 && thread == 1) return (*group)->exchange(rank).abort();
    aborted += (*group)->exchange(rank).arrive_and_wait(0, 64) == Wait::kAborted;
  });
  EXPECT_EQ(aborted, 5);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ((*group)->exchange(rank).arrive_and_wait(1, 64), Wait::kAborted);
  }
}

TEST(ShmExchange, MissingPeerIsATimeout) {
  WaitOptions wait = test_wait();
  wait.timeout_ns = 20'000'000;
  auto group = LocalGroup::create({.shape = {2, 1, 64}, .record_bytes_max = 1, .wait = wait});
  ASSERT_TRUE(group.ok());
  EXPECT_EQ((*group)->exchange(0).arrive_and_wait(0, 64), Wait::kTimeout);
  EXPECT_GE((*group)->exchange(0).stats().sleeps, 1u);
}

TEST(ShmExchange, VerifyNamesWhatDiffers) {
  const ShmExchangeShape shape = {2, 1, 64};
  auto region = Region::anonymous(ShmExchange::bytes_per_rank(shape));
  ASSERT_TRUE(region.ok());
  const ShmExchange::Stamp stamp = {.rank = 1, .nonce = {{5, 6}}};
  ShmExchange::format(region->data(), shape, stamp);
  EXPECT_TRUE(ShmExchange::verify(region->data(), shape, stamp).ok());
  const auto fails_with = [&](ShmExchangeShape other, ShmExchange::Stamp who, const char* text) {
    const auto result = ShmExchange::verify(region->data(), other, who);
    return !result.ok() && result.error().message.find(text) != std::string::npos;
  };
  EXPECT_TRUE(fails_with({3, 1, 64}, stamp, "of 3"));
  EXPECT_TRUE(fails_with({2, 1, 128}, stamp, "with 128"));
  EXPECT_TRUE(fails_with(shape, {.rank = 0, .nonce = {{5, 6}}}, "rank 0"));
  EXPECT_TRUE(fails_with(shape, {.rank = 1, .nonce = {{5, 7}}}, "do not share memory"));
  std::memset(region->data(), 0, 8);
  EXPECT_TRUE(fails_with(shape, stamp, "no exchange region"));
}

TEST(ShmExchangeDeathTest, RefusesOurBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto group = LocalGroup::create({.shape = {1, 1, 64}, .record_bytes_max = 1});
  ASSERT_TRUE(group.ok());
  ShmExchange& exchange = (*group)->exchange(0);
  EXPECT_DEATH((void)exchange.arrive_and_wait(0, 65), "a slice of 65 bytes");
  ASSERT_EQ(exchange.arrive_and_wait(0, 64), Wait::kOk);
  EXPECT_DEATH((void)exchange.arrive_and_wait(0, 64), "gather 0 comes again");
}

}  // namespace
}  // namespace shm
