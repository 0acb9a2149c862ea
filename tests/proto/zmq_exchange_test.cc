// The exchange over ZeroMQ against peers that lie, die or stay silent; what honest peers may expect
// is in tests/worker/exchange_conformance_test.cc.
#include "proto/zmq_exchange.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>

#include "tests/engine/allocations.h"
#include "tests/proto/zmq_ranks.h"

namespace proto {
namespace {

using base::Wait;

constexpr base::TimeNs kMinute = 60'000'000'000;
constexpr size_t kSliceMax = 128, kRecordMax = 300;

ZmqGroupOptions options_of(int rank, int ranks, const SocketDirectory& directory) {
  return {.rank = rank,
          .ranks = ranks,
          .endpoints = directory.endpoints(rank, ranks),
          .slice_bytes_max = kSliceMax,
          .record_bytes_max = kRecordMax,
          .terms = "--exchange zmq",
          .wait = {.timeout_ns = kMinute},
          .meet_timeout_ns = kMinute};
}

using Bytes = std::vector<std::byte>;

Bytes frame(const FrameStamp& stamp, FrameKind kind, uint64_t sequence, size_t payload) {
  const FrameHeader header = make_header(stamp, kind, sequence, payload);
  Bytes bytes(sizeof header + payload, std::byte{0xee});
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

/// The other one of two ranks, who can send any bytes. It repeats the hello it gets in its own
/// name, so that the nonce of the group is zero.
class Hostile {
 public:
  Hostile(const SocketDirectory& directory, int rank) : rank_(rank) {
    auto context = ZmqContext::create();
    CHECK(context.ok());
    context_ = std::move(*context);
    auto socket = PairSocket::open(
        *context_, {.endpoint = directory.endpoint(0, 1),
                    .side = rank == 0 ? PairSocket::Side::kBinds : PairSocket::Side::kConnects,
                    .message_bytes_max = 1 << 20});
    CHECK(socket.ok(), socket.error().message);
    socket_ = std::move(*socket);
  }

  Bytes receive() {
    while (true) {
      if (const auto message = socket_->receive()) return {message->begin(), message->end()};
      std::this_thread::yield();
    }
  }
  void send(const Bytes& bytes) {
    while (!socket_->send(bytes)) std::this_thread::yield();
  }
  /// `change` may spoil the hello.
  void greet(const std::function<void(Bytes&)>& change = {}) {
    Bytes hello = receive();
    const auto sender = static_cast<uint32_t>(rank_);
    std::memcpy(hello.data() + offsetof(FrameHeader, sender), &sender, sizeof sender);
    if (change) change(hello);
    send(hello);
  }
  FrameStamp stamp() const { return {.sender = rank_}; }

 private:
  const int rank_;
  std::unique_ptr<ZmqContext> context_;
  std::unique_ptr<PairSocket> socket_;
};

/// Rank `honest` of two, met with a hostile one.
struct Pair {
  explicit Pair(int honest) : hostile(directory, 1 - honest) {
    std::thread greeting([&] { hostile.greet(); });
    auto met = ZmqGroup::meet(options_of(honest, 2, directory));
    greeting.join();
    CHECK(met.ok(), met.error().message);
    group = std::move(*met);
    CHECK(group->start(1).ok());
  }
  SocketDirectory directory;
  Hostile hostile;
  std::unique_ptr<ZmqGroup> group;
};

template <class Field>
void poke(Bytes& bytes, size_t offset, Field value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

struct Lie {
  const char* fault;  // part of what is said about it
  std::function<std::vector<Bytes>(FrameStamp)> frames;
};

Bytes spoiled(const FrameStamp& stamp, const std::function<void(Bytes&)>& change) {
  Bytes bytes = frame(stamp, FrameKind::kSlice, 0, 64);
  change(bytes);
  return bytes;
}

std::vector<Lie> lies_to_a_leader() {
  const auto one = [](const std::function<void(Bytes&)>& change) {
    return [change](FrameStamp stamp) { return std::vector<Bytes>{spoiled(stamp, change)}; };
  };
  const auto plain = [](FrameKind kind, uint64_t sequence, size_t payload) {
    return
        [=](FrameStamp stamp) { return std::vector<Bytes>{frame(stamp, kind, sequence, payload)}; };
  };
  return {
      {"none of the exchange", one([](Bytes& b) { b[0] = std::byte{'n'}; })},
      {"of version 2", one([](Bytes& b) { poke(b, 8, uint32_t{2}); })},
      {"unknown kind 0", one([](Bytes& b) { poke(b, 12, uint32_t{0}); })},
      {"unknown kind 7", one([](Bytes& b) { poke(b, 12, uint32_t{7}); })},
      {"in the name of rank 0", one([](Bytes& b) { poke(b, 16, uint32_t{0}); })},
      {"in the name of rank 4294967295", one([](Bytes& b) { poke(b, 16, ~uint32_t{0}); })},
      {"unknown fields", one([](Bytes& b) { poke(b, 20, uint32_t{1}); })},
      {"another group", one([](Bytes& b) { poke(b, 24, uint64_t{1}); })},
      {"another group", one([](Bytes& b) { poke(b, 32, uint64_t{1}); })},
      {"announces 65 bytes and has 64", one([](Bytes& b) { poke(b, 48, uint64_t{65}); })},
      {"announces 18446744073709551615", one([](Bytes& b) { poke(b, 48, ~uint64_t{0}); })},
      {"unknown fields", one([](Bytes& b) { poke(b, 56, uint64_t{1}); })},
      {"has no header", one([](Bytes& b) { b.resize(63); })},
      {"has no header", one([](Bytes& b) { b.clear(); })},
      {"sent slice 1, slice 0 is its next", plain(FrameKind::kSlice, 1, 64)},
      {"sent slice 18446744073709551615", plain(FrameKind::kSlice, ~uint64_t{0}, 64)},
      {"a slice of 129 bytes, at most 128", plain(FrameKind::kSlice, 0, kSliceMax + 1)},
      {"sent record 0", plain(FrameKind::kRecord, 0, 10)},
      {"sent read 0", plain(FrameKind::kRead, 0, 0)},
      {"sent hello 0", plain(FrameKind::kHello, 0, 64)},
      {"sent vote 0", plain(FrameKind::kVote, 0, 8)},
      // Twice the same, and further ahead than anyone can be.
      {"sent slice 0, slice 1 is its next",
       [](FrameStamp stamp) { return std::vector(2, frame(stamp, FrameKind::kSlice, 0, 64)); }},
  };
}

TEST(ZmqExchange, LiesEndTheGroupBeforeAByteIsUsed) {
  for (const Lie& lie : lies_to_a_leader()) {
    SCOPED_TRACE(lie.fault);
    Pair pair(0);
    ZmqExchange& exchange = pair.group->exchange();
    const std::vector<Bytes> frames = lie.frames(pair.hostile.stamp());
    for (const Bytes& bytes : frames) pair.hostile.send(bytes);
    // A lie behind a true slice may come before or after the gather is over.
    Wait wait = exchange.arrive_and_wait(0, 64);
    if (wait == Wait::kOk && frames.size() > 1) wait = exchange.arrive_and_wait(1, 64);
    EXPECT_EQ(wait, Wait::kBroken) << base::wait_name(wait);
    EXPECT_NE(exchange.fault().find(lie.fault), std::string::npos) << exchange.fault();
    if (frames.size() == 1) {
      const std::byte* slice = exchange.incoming(0, 1);
      EXPECT_EQ(std::count(slice, slice + kSliceMax, std::byte{0}), std::ptrdiff_t{kSliceMax});
    }
    EXPECT_EQ(exchange.arrive_and_wait(1, 64), Wait::kBroken);
    EXPECT_EQ(pair.group->feed().publish(0, {}), Wait::kBroken);
    // The peer is told that it is over, behind the slice it was sent.
    Bytes told = pair.hostile.receive();
    while (told.size() != sizeof(FrameHeader)) told = pair.hostile.receive();
    EXPECT_EQ(check_frame(told, {.sender = 0})->kind, FrameKind::kAbort);
  }
}

TEST(ZmqExchange, SlicesFurtherAheadThanPossibleAreRefused) {
  Pair pair(0);
  for (const uint64_t n : {0, 1, 2})
    pair.hostile.send(frame(pair.hostile.stamp(), FrameKind::kSlice, n, 64));
  Wait wait = Wait::kOk;
  uint64_t n = 0;
  // The third may be seen in any of the first two gathers, or is in time for none.
  while (wait == Wait::kOk && n < 3) wait = pair.group->exchange().arrive_and_wait(n++, 64);
  if (wait != Wait::kOk) {
    EXPECT_EQ(wait, Wait::kBroken);
    EXPECT_NE(pair.group->exchange().fault().find("sent slice 2"), std::string::npos);
  }
}

// Numbers that both leave out may be many, but both have to mean the same gather.
TEST(ZmqExchange, SlicesOfOtherGathersThanOursAreRefused) {
  const auto alone = base::RankSet::range(0, 1);
  for (const uint64_t theirs : {uint64_t{5}, uint64_t{4}, ~uint64_t{0}}) {
    Pair pair(0);
    ZmqExchange& exchange = pair.group->exchange();
    pair.hostile.send(frame(pair.hostile.stamp(), FrameKind::kSlice, 0, 64));
    ASSERT_EQ(exchange.arrive_and_wait(0, 64), Wait::kOk);
    // Before our gather, or in the middle of it.
    pair.hostile.send(frame(pair.hostile.stamp(), FrameKind::kSlice, theirs, 128));
    ASSERT_EQ(exchange.arrive_and_wait({.sequence = 1, .bytes = 64, .members = alone}), Wait::kOk);
    const Wait wait = exchange.arrive_and_wait(5, 0);
    EXPECT_EQ(wait, theirs == 5 ? Wait::kOk : Wait::kBroken) << theirs;
    if (theirs != 5) {
      EXPECT_NE(exchange.fault().find(base::cat("sent slice ", theirs)), std::string::npos)
          << exchange.fault();
    }
  }
}

TEST(ZmqExchange, LiesToAFollowerAreRefused) {
  const std::vector<Lie> lies = {
      {"record 1 of 10 bytes, record 0",
       [](FrameStamp s) { return std::vector<Bytes>{frame(s, FrameKind::kRecord, 1, 10)}; }},
      {"record 0 of 301 bytes",
       [](FrameStamp s) {
         return std::vector<Bytes>{frame(s, FrameKind::kRecord, 0, kRecordMax + 1)};
       }},
      {"read 0", [](FrameStamp s) { return std::vector<Bytes>{frame(s, FrameKind::kRead, 0, 0)}; }},
      {"slice 1, slice 1 is its next and gather 0 ours", [](FrameStamp s) {
         return std::vector<Bytes>{frame(s, FrameKind::kSlice, 0, 8),
                                   frame(s, FrameKind::kSlice, 1, 8)};
       }}};
  for (const Lie& lie : lies) {
    Pair pair(1);
    for (const Bytes& bytes : lie.frames(pair.hostile.stamp())) pair.hostile.send(bytes);
    std::vector<std::byte> record;
    Wait wait = pair.group->feed().read(0, kMinute, record);
    EXPECT_EQ(wait, Wait::kBroken) << lie.fault;
    EXPECT_NE(pair.group->exchange().fault().find(lie.fault), std::string::npos)
        << pair.group->exchange().fault();
  }
  // Three unread records: one more than a leader that waits for us can send.
  Pair pair(1);
  for (const uint64_t n : {0, 1, 2})
    pair.hostile.send(frame(pair.hostile.stamp(), FrameKind::kRecord, n, 10));
  EXPECT_EQ(pair.group->exchange().arrive_and_wait(0, 64), Wait::kBroken);
  EXPECT_NE(pair.group->exchange().fault().find("sent record 2"), std::string::npos);
}

// Longer than any slice, record or hello of this group.
TEST(ZmqExchange, AMessageOverTheLimitEndsTheConnection) {
  Pair pair(0);
  pair.hostile.send(Bytes(1000));
  EXPECT_EQ(pair.group->exchange().arrive_and_wait(0, 64), Wait::kPeerLost);
}

TEST(ZmqExchange, AnAbortFrameEndsAllWaits) {
  Pair pair(1);
  pair.hostile.send(frame(pair.hostile.stamp(), FrameKind::kAbort, 0, 0));
  std::vector<std::byte> record;
  EXPECT_EQ(pair.group->feed().read(0, kMinute, record), Wait::kAborted);
  EXPECT_EQ(pair.group->exchange().arrive_and_wait(0, 64), Wait::kAborted);
}

// What a rank sent before it ended counts; what it did not send is missed at once.
TEST(ZmqExchange, APeerThatEndsIsLostAfterItsLastSlice) {
  for (int round = 0; round < 20; round++) {
    SocketDirectory directory;
    auto groups = meet_in_threads(directory, options_of(0, 3, directory), 1);
    ASSERT_TRUE(groups.ok()) << groups.error().message;
    std::thread other([&] {
      ASSERT_EQ((*groups)[2]->exchange().arrive_and_wait(0, 64), Wait::kOk);
      (*groups)[2].reset();
    });
    std::thread third([&] {
      ASSERT_EQ((*groups)[1]->exchange().arrive_and_wait(0, 64), Wait::kOk);
      std::vector<std::byte> record;
      EXPECT_EQ((*groups)[1]->feed().read(0, kMinute, record), Wait::kPeerLost);
    });
    EXPECT_EQ((*groups)[0]->exchange().arrive_and_wait(0, 64), Wait::kOk);
    EXPECT_EQ((*groups)[0]->exchange().arrive_and_wait(1, 64), Wait::kPeerLost);
    other.join();
    third.join();
  }
}

#ifndef __SANITIZE_THREAD__  // it does not follow forks of processes with threads
TEST(ZmqExchange, AKilledProcessIsLostAtAnyMoment) {
  std::mt19937 random(7);
  for (int round = 0; round < 15; round++) {
    SocketDirectory directory;
    const pid_t child = fork();
    if (child == 0) {
      auto group = ZmqGroup::meet(options_of(1, 2, directory));
      if (!group.ok() || !(*group)->start(1).ok()) _exit(1);
      for (uint64_t n = 0; (*group)->exchange().arrive_and_wait(n, 64) == Wait::kOk; n++) {
      }
      _exit(2);
    }
    auto group = ZmqGroup::meet(options_of(0, 2, directory));
    ASSERT_TRUE(group.ok()) << group.error().message;
    ASSERT_TRUE((*group)->start(1).ok());
    EXPECT_TRUE(directory.is_empty()) << "a name is left after the meeting";
    const uint64_t last = random() % 50;
    uint64_t n = 0;
    Wait wait = Wait::kOk;
    for (; wait == Wait::kOk; n++) {
      if (n == last) kill(child, SIGKILL);
      wait = (*group)->exchange().arrive_and_wait(n, 64);
    }
    EXPECT_EQ(wait, Wait::kPeerLost);
    EXPECT_GE(n, last);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "round " << round << ", status " << status;
  }
}
#endif

TEST(ZmqExchange, AStepAllocatesNothingOfItsOwn) {
  SocketDirectory directory;
  auto groups = meet_in_threads(directory, options_of(0, 2, directory), 1);
  ASSERT_TRUE(groups.ok()) << groups.error().message;
  const Bytes record(100);
  const auto steps = [&](int rank, uint64_t first) {
    ZmqGroup& group = *(*groups)[static_cast<size_t>(rank)];
    std::vector<std::byte> into;
    into.reserve(kRecordMax);
    for (uint64_t n = first; n < first + 100; n++) {
      ASSERT_EQ(rank == 0 ? group.feed().publish(n, record) : group.feed().read(n, kMinute, into),
                Wait::kOk);
      ASSERT_EQ(group.exchange().arrive_and_wait(n, 64), Wait::kOk);
    }
  };
  int64_t before = 0, after = 0;
  std::thread follower([&] {
    steps(1, 0);
    steps(1, 100);
  });
  steps(0, 0);
  before = engine::allocation_count();
  steps(0, 100);
  after = engine::allocation_count();
  follower.join();
  EXPECT_LT(after - before, 5);  // the vector of the follower's second half, and its growth
}

}  // namespace
}  // namespace proto
