// One contract for exchange and step feed, whatever carries them: shared memory or ZeroMQ. Ranks
// are threads here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "base/rng.h"
#include "shm/local_group.h"
#include "tests/proto/zmq_ranks.h"

namespace worker {
namespace {

using base::Wait;

constexpr base::TimeNs kMinute = 60'000'000'000;

struct Shape {
  int ranks = 1, threads = 1;
  size_t slice_bytes_max = 64, record_bytes_max = 300;
  uint64_t first_sequence = 0;
  base::TimeNs timeout_ns = kMinute;
  int spin_pauses = 50;
};

/// A group in this process.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual base::Exchange& exchange(int rank) = 0;
  virtual base::StepFeed& feed(int rank) = 0;
};

class ShmRanks final : public Ranks {
 public:
  explicit ShmRanks(const Shape& shape) {
    auto group = shm::LocalGroup::create(
        {.shape = {shape.ranks, shape.threads, shape.slice_bytes_max},
         .record_bytes_max = shape.record_bytes_max,
         .wait = {.spin_pauses = shape.spin_pauses, .timeout_ns = shape.timeout_ns},
         .first_sequence = shape.first_sequence});
    CHECK(group.ok(), group.error().message);
    group_ = std::move(*group);
  }
  base::Exchange& exchange(int rank) override { return group_->exchange(rank); }
  base::StepFeed& feed(int rank) override { return group_->board(rank); }

 private:
  std::unique_ptr<shm::LocalGroup> group_;
};

class ZmqRanks final : public Ranks {
 public:
  explicit ZmqRanks(const Shape& shape) {
    auto groups = proto::meet_in_threads(
        directory_,
        {.ranks = shape.ranks,
         .slice_bytes_max = shape.slice_bytes_max,
         .record_bytes_max = shape.record_bytes_max,
         .wait = {.spin_pauses = shape.spin_pauses, .timeout_ns = shape.timeout_ns},
         .first_sequence = shape.first_sequence,
         .meet_timeout_ns = kMinute},
        shape.threads);
    CHECK(groups.ok(), groups.error().message);
    groups_ = std::move(*groups);
  }
  base::Exchange& exchange(int rank) override {
    return groups_[static_cast<size_t>(rank)]->exchange();
  }
  base::StepFeed& feed(int rank) override { return groups_[static_cast<size_t>(rank)]->feed(); }

 private:
  proto::SocketDirectory directory_;
  std::vector<std::unique_ptr<proto::ZmqGroup>> groups_;
};

class ExchangeContract : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Ranks> make(const Shape& shape) const {
    if (GetParam() == std::string("shm")) return std::make_unique<ShmRanks>(shape);
    return std::make_unique<ZmqRanks>(shape);
  }
};

INSTANTIATE_TEST_SUITE_P(, ExchangeContract, testing::Values("shm", "zmq"),
                         [](const auto& info) { return std::string(info.param); });

/// A word that depends on everything that could be mixed up.
uint32_t word_of(uint64_t sequence, int rank, size_t index) {
  return base::philox({static_cast<uint32_t>(sequence), static_cast<uint32_t>(rank),
                       static_cast<uint32_t>(index), 7},
                      {1, 2})[0];
}

std::vector<std::byte> record_of(uint64_t sequence) {
  std::vector<std::byte> record((sequence * 53) % 301);
  for (size_t i = 0; i < record.size(); ++i) record[i] = std::byte(sequence * 7 + i);
  return record;
}

void run_threads(const Shape& shape, const std::function<void(int, int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    for (int thread = 0; thread < shape.threads; ++thread) {
      threads.emplace_back([&body, rank, thread] { body(rank, thread); });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

size_t words_of(const Shape& shape, uint64_t sequence, int rank) {
  return (sequence * 31 + static_cast<uint64_t>(rank)) % (shape.slice_bytes_max / 4 + 1);
}

/// This thread's part of a gather of random words, and a look at every word that came; how many are
/// wrong, or nothing if the gather failed.
std::optional<size_t> gather(base::Exchange& exchange, const Shape& shape, int thread,
                             uint64_t sequence) {
  const size_t words = words_of(shape, sequence, exchange.rank());
  auto* out = reinterpret_cast<uint32_t*>(exchange.outgoing(sequence));
  for (auto i = static_cast<size_t>(thread); i < words; i += static_cast<size_t>(shape.threads))
    out[i] = word_of(sequence, exchange.rank(), i);
  if (exchange.arrive_and_wait(sequence, words * sizeof(uint32_t)) != Wait::kOk)
    return std::nullopt;
  size_t wrong = 0;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    const auto* in = reinterpret_cast<const uint32_t*>(exchange.incoming(sequence, peer));
    for (size_t i = 0; i < words_of(shape, sequence, peer); ++i)
      wrong += in[i] != word_of(sequence, peer, i);
  }
  return wrong;
}

/// Slices of sizes that change and differ between ranks, some of them empty.
void check_gathers(Ranks& group, const Shape& shape, uint64_t count) {
  std::atomic<uint64_t> wrong{0}, failed{0};
  run_threads(shape, [&](int rank, int thread) {
    for (uint64_t n = shape.first_sequence; n != shape.first_sequence + count; ++n) {
      const auto result = gather(group.exchange(rank), shape, thread, n);
      if (!result) {
        failed++;
        return;
      }
      wrong += *result;
    }
  });
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(ExchangeContract, GathersArriveWholeForAllShapes) {
  for (const Shape& shape : {Shape{1, 1, 256}, Shape{1, 3, 256}, Shape{2, 1, 512}, Shape{2, 2, 512},
                             Shape{3, 2, 128}, Shape{2, 1, 300'000}}) {
    SCOPED_TRACE(base::cat(shape.ranks, " ranks x ", shape.threads));
    check_gathers(*make(shape), shape, shape.slice_bytes_max > 1000 ? 20 : 300);
  }
}

/// Who takes part in which gather: what a walk through stages asks for.
class Stages {
 public:
  /// `rounds` times: a gather of all, for each stage some of its own and one of all.
  Stages(int ranks, int stages, uint64_t rounds) : ranks_(ranks) {
    uint64_t draw = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      members_.push_back(all());
      for (int stage = 0; stage < stages; ++stage) {
        const auto own = base::RankSet::range(ranks * stage / stages, ranks * (stage + 1) / stages);
        members_.insert(members_.end(), word_of(draw++, 0, 0) % 5, own);
        members_.push_back(all());
      }
    }
  }
  uint64_t count() const { return members_.size(); }
  base::RankSet members(uint64_t n) const { return members_[n]; }
  /// A rank that has left out numbers publishes nothing.
  bool publishes(uint64_t n, int rank) const { return n == 0 || members_[n - 1].contains(rank); }
  /// Whether `reader` may read the slice of `rank`: it takes part in that one's next gather.
  bool reads(uint64_t n, int reader, int rank) const {
    if (!members_[n].contains(rank)) return false;
    do ++n;
    while (n < count() && !members_[n].contains(rank));
    return n == count() || members_[n].contains(reader);
  }

 private:
  base::RankSet all() const { return base::RankSet::range(0, ranks_); }

  const int ranks_;
  std::vector<base::RankSet> members_;
};

/// One thread's walk; how many words are wrong, or nothing if a gather failed.
std::optional<size_t> walk(base::Exchange& exchange, const Shape& shape, int thread,
                           const Stages& stages) {
  const int rank = exchange.rank();
  const auto words = [&](uint64_t n, int r) {
    return stages.publishes(n, r) ? words_of(shape, n, r) : 0;
  };
  size_t wrong = 0;
  for (uint64_t n = 0; n < stages.count(); ++n) {
    if (!stages.members(n).contains(rank)) continue;
    auto* out = reinterpret_cast<uint32_t*>(exchange.outgoing(n));
    const size_t own = words(n, rank);
    for (auto i = static_cast<size_t>(thread); i < own; i += static_cast<size_t>(shape.threads))
      out[i] = word_of(n, rank, i);
    const base::Gather gather = {
        .sequence = n, .bytes = own * sizeof(uint32_t), .members = stages.members(n)};
    if (exchange.arrive_and_wait(gather) != Wait::kOk) return std::nullopt;
    // Now and then a thread reads late.
    if (word_of(n, rank, 1000) % 4 == 0) std::this_thread::yield();
    for (int peer = 0; peer < shape.ranks; ++peer) {
      if (!stages.reads(n, rank, peer)) continue;
      const auto* in = reinterpret_cast<const uint32_t*>(exchange.incoming(n, peer));
      for (size_t i = 0; i < words(n, peer); ++i) wrong += in[i] != word_of(n, peer, i);
    }
  }
  return wrong;
}

TEST_P(ExchangeContract, StagesMeetAloneAndAtTheirEnds) {
  struct Case {
    int ranks, stages, threads;
  };
  for (const Case& one :
       {Case{2, 2, 1}, Case{2, 2, 2}, Case{3, 3, 1}, Case{4, 2, 1}, Case{5, 3, 2}, Case{3, 1, 1}}) {
    SCOPED_TRACE(base::cat(one.ranks, " ranks, ", one.stages, " stages x ", one.threads));
    const Shape shape{one.ranks, one.threads, 512};
    const Stages stages(one.ranks, one.stages, 60);
    const auto group = make(shape);
    std::atomic<uint64_t> wrong{0}, failed{0};
    run_threads(shape, [&](int rank, int thread) {
      const auto result = walk(group->exchange(rank), shape, thread, stages);
      result ? wrong += *result : failed++;
    });
    EXPECT_EQ(failed, 0u);
    EXPECT_EQ(wrong, 0u);
  }
}

// Members wait for members only: the third rank never comes.
TEST_P(ExchangeContract, OthersAreNotWaitedFor) {
  const Shape shape{3};
  const auto group = make(shape);
  run_threads(shape, [&](int rank, int) {
    if (rank == 2) return;
    base::Exchange& exchange = group->exchange(rank);
    for (uint64_t n = 0; n < 20; ++n) {
      const auto members =
          n % 3 == 0 ? base::RankSet::range(rank, rank + 1) : base::RankSet::range(0, 2);
      EXPECT_EQ(exchange.arrive_and_wait({.sequence = n, .bytes = 64, .members = members}),
                Wait::kOk);
    }
  });
}

TEST_P(ExchangeContract, NumbersWrapIn32Bits) {
  for (const uint64_t middle : {uint64_t{1} << 31, uint64_t{1} << 32}) {
    Shape shape{2, 2, 64};
    shape.first_sequence = middle - 50;
    check_gathers(*make(shape), shape, 100);
  }
}

TEST_P(ExchangeContract, ThreadsThatDoNotSpinAreWoken) {
  Shape shape{2, 3, 64};
  shape.spin_pauses = 0;
  check_gathers(*make(shape), shape, 300);
}

TEST_P(ExchangeContract, SlicesAreAlignedAndApart) {
  const auto group = make({3, 1, 100});
  base::Exchange& exchange = group->exchange(1);
  EXPECT_EQ(exchange.rank(), 1);
  EXPECT_EQ(exchange.rank_count(), 3);
  EXPECT_EQ(exchange.slice_bytes_max(), 100u);
  EXPECT_EQ(exchange.outgoing(0), exchange.outgoing(2));
  std::vector<const std::byte*> begins;
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    run_threads({3}, [&](int rank, int) {
      EXPECT_EQ(group->exchange(rank).arrive_and_wait(sequence, 0), Wait::kOk);
    });
    EXPECT_EQ(exchange.outgoing(sequence), exchange.incoming(sequence, 1));
    for (int rank = 0; rank < 3; ++rank) begins.push_back(exchange.incoming(sequence, rank));
  }
  std::sort(begins.begin(), begins.end());
  for (size_t i = 0; i < begins.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begins[i]) % 64, 0u);
    if (i > 0) {
      EXPECT_GE(begins[i] - begins[i - 1], 100);
    }
  }
}

TEST_P(ExchangeContract, AbortEndsPresentAndFutureWaitsOfAllRanks) {
  const Shape shape{3, 2, 64};
  const auto group = make(shape);
  std::atomic<int> aborted{0};
  run_threads(shape, [&](int rank, int thread) {
    // One thread of rank 2 never arrives; it aborts instead.
    if (rank == 2 && thread == 1) return group->exchange(rank).abort();
    aborted += group->exchange(rank).arrive_and_wait(0, 64) == Wait::kAborted;
  });
  EXPECT_EQ(aborted, 5);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(group->exchange(rank).arrive_and_wait(1, 64), Wait::kAborted);
}

// The abort of a leader comes behind records that nobody has read yet.
TEST_P(ExchangeContract, AbortIsNotHiddenBehindWhatCameBefore) {
  const Shape shape{3, 1, 64};
  const auto group = make(shape);
  run_threads(shape, [&](int rank, int) {
    // Waits for rank 2, which never comes; only the abort can end that.
    if (rank == 1) {
      EXPECT_EQ(group->exchange(1).arrive_and_wait(0, 64), Wait::kAborted);
    }
    if (rank != 0) return;
    EXPECT_EQ(group->feed(0).publish(0, record_of(1)), Wait::kOk);
    EXPECT_EQ(group->feed(0).publish(1, record_of(2)), Wait::kOk);
    group->exchange(0).abort();
  });
}

/// Returns when that thread of this process sleeps in the kernel.
void await_asleep(const std::atomic<pid_t>& thread) {
  char state = '?';
  while (state != 'S') {
    std::this_thread::yield();
    std::ifstream stat(base::cat("/proc/self/task/", thread.load(), "/stat"));
    std::string line;
    std::getline(stat, line);
    const size_t name_end = line.rfind(") ");  // of pid 0 there is none
    if (name_end != std::string::npos) state = line[name_end + 2];
  }
}

// Whoever sleeps in a gather or for a record is woken by a thread of its own rank too.
TEST_P(ExchangeContract, AbortFromAThreadBesideTheOneThatWaits) {
  for (const int waiting : {0, 1}) {
    const auto group = make({2});
    std::atomic<pid_t> waiter{0};
    std::thread other([&] {
      std::vector<std::byte> record;
      waiter = gettid();
      EXPECT_EQ(waiting == 0 ? group->exchange(0).arrive_and_wait(0, 64)
                             : group->feed(1).read(0, kMinute, record),
                Wait::kAborted);
    });
    await_asleep(waiter);
    group->exchange(waiting).abort();
    other.join();
    // The other rank may still complete a gather whose slices came before the word of the end.
    base::Exchange& exchange = group->exchange(1 - waiting);
    const Wait first = exchange.arrive_and_wait(0, 64);
    EXPECT_TRUE(first == Wait::kAborted || (waiting == 0 && first == Wait::kOk));
    EXPECT_EQ(exchange.arrive_and_wait(1, 64), Wait::kAborted);
  }
}

TEST_P(ExchangeContract, MissingPeerIsATimeout) {
  Shape shape{2, 1, 64};
  shape.timeout_ns = 20'000'000;
  const auto group = make(shape);
  EXPECT_EQ(group->exchange(0).arrive_and_wait(0, 64), Wait::kTimeout);
}

void check_records(Ranks& group, const Shape& shape, uint64_t count) {
  const uint64_t first = shape.first_sequence;
  std::atomic<int> failed{0};
  run_threads(shape, [&](int rank, int) {
    std::vector<std::byte> record;
    for (uint64_t n = first; n != first + count && failed == 0; ++n) {
      Wait wait = Wait::kTimeout;
      if (rank == 0) {
        wait = group.feed(0).publish(n, record_of(n));
      } else {
        while (wait == Wait::kTimeout) wait = group.feed(rank).read(n, 500'000, record);
      }
      if (wait == Wait::kOk && (rank == 0 || record == record_of(n))) continue;
      failed++;
      group.feed(rank).abort();
    }
  });
  EXPECT_EQ(failed, 0);
}

TEST_P(ExchangeContract, EveryFollowerReadsEveryRecord) {
  for (const int ranks : {1, 2, 4}) {
    const Shape shape{ranks};
    check_records(*make(shape), shape, 300);
  }
  Shape wrapping{2};
  wrapping.first_sequence = (uint64_t{1} << 32) - 20;
  check_records(*make(wrapping), wrapping, 40);
}

TEST_P(ExchangeContract, NoRecordIsATimeoutAndComesLater) {
  const auto group = make({2});
  std::vector<std::byte> record;
  EXPECT_EQ(group->feed(1).read(0, 100'000, record), Wait::kTimeout);
  EXPECT_EQ(group->feed(1).read(0, 0, record), Wait::kTimeout);
  EXPECT_EQ(group->feed(0).publish(0, record_of(5)), Wait::kOk);
  EXPECT_EQ(group->feed(1).read(0, kMinute, record), Wait::kOk);
  EXPECT_EQ(record, record_of(5));
}

// Two records fit; the third waits for a follower that does not read.
TEST_P(ExchangeContract, LeaderDoesNotOverwriteWhatIsUnread) {
  Shape shape{2};
  shape.timeout_ns = 5'000'000;
  const auto group = make(shape);
  EXPECT_EQ(group->feed(0).publish(0, record_of(1)), Wait::kOk);
  EXPECT_EQ(group->feed(0).publish(1, record_of(2)), Wait::kOk);
  EXPECT_EQ(group->feed(0).publish(2, record_of(3)), Wait::kTimeout);
  std::vector<std::byte> record;
  EXPECT_EQ(group->feed(1).read(0, kMinute, record), Wait::kOk);
  EXPECT_EQ(record, record_of(1));
  Wait wait = Wait::kTimeout;
  while (wait == Wait::kTimeout) wait = group->feed(0).publish(2, record_of(3));
  EXPECT_EQ(wait, Wait::kOk);
  for (const uint64_t n : {1u, 2u}) {
    EXPECT_EQ(group->feed(1).read(n, kMinute, record), Wait::kOk);
    EXPECT_EQ(record, record_of(n + 1));
  }
}

TEST_P(ExchangeContract, AbortEndsWaitsOfFeedAndExchange) {
  const auto group = make({2});
  std::thread follower([&] {
    std::vector<std::byte> record;
    Wait wait = Wait::kTimeout;
    while (wait == Wait::kTimeout) wait = group->feed(1).read(0, kMinute, record);
    EXPECT_EQ(wait, Wait::kAborted);
  });
  group->feed(0).abort();
  follower.join();
  EXPECT_EQ(group->feed(0).publish(0, {}), Wait::kAborted);
  EXPECT_EQ(group->exchange(1).arrive_and_wait(0, 64), Wait::kAborted);
}

// As the engine uses both: a record, then gathers, again and again.
TEST_P(ExchangeContract, StepsOfRecordAndGathers) {
  const Shape shape{3, 1, 256};
  const auto group = make(shape);
  std::atomic<uint64_t> wrong{0};
  run_threads(shape, [&](int rank, int) {
    std::vector<std::byte> record;
    uint64_t sequence = 0;
    for (uint64_t step = 0; step < 100; ++step) {
      Wait wait = Wait::kTimeout;
      if (rank == 0) {
        wait = group->feed(0).publish(step, record_of(step));
      } else {
        while (wait == Wait::kTimeout) wait = group->feed(rank).read(step, 1'000'000, record);
      }
      wrong += wait != Wait::kOk || (rank > 0 && record != record_of(step));
      for (uint64_t i = 0; i < 1 + step % 4; ++i)
        wrong += gather(group->exchange(rank), shape, 0, sequence++).value_or(1);
      if (wrong > 0) return group->exchange(rank).abort();
    }
  });
  EXPECT_EQ(wrong, 0u);
}

TEST_P(ExchangeContract, RefusesOurBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)make({1, 1, 64})->exchange(0).arrive_and_wait(0, 65), "a slice of 65 bytes");
  EXPECT_DEATH(
      {
        const auto group = make({1, 1, 64});
        (void)group->exchange(0).arrive_and_wait(0, 64);
        (void)group->exchange(0).arrive_and_wait(0, 64);
      },
      "gather 0 comes again");
  EXPECT_DEATH((void)make({1})->exchange(0).arrive_and_wait(1, 64),
               "gather 1 publishes a slice after others were left out");
  EXPECT_DEATH((void)make({2})->exchange(0).arrive_and_wait(
                   {.sequence = 0, .bytes = 0, .members = base::RankSet::range(1, 2)}),
               "rank 0 is no member of gather 0");
  EXPECT_DEATH((void)make({1})->feed(0).publish(1, {}), "record 1 is not the next");
  EXPECT_DEATH((void)make({1})->feed(0).publish(0, std::vector<std::byte>(301)),
               "a record of 301 bytes");
}

}  // namespace
}  // namespace worker
