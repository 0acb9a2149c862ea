// The meeting: who expects something else, who does not come, who ends on the way, what is voted.
#include "proto/zmq_group.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <optional>

#include "tests/proto/zmq_ranks.h"

namespace proto {
namespace {

constexpr base::TimeNs kMinute = 60'000'000'000;

ZmqGroupOptions options_of(int rank, int ranks, const SocketDirectory& directory) {
  return {.rank = rank,
          .ranks = ranks,
          .endpoints = directory.endpoints(rank, ranks),
          .slice_bytes_max = 128,
          .record_bytes_max = 300,
          .terms = "--exchange auto",
          .offer = base::cat("offer of ", rank),
          .meet_timeout_ns = kMinute};
}

using Met = base::Result<std::unique_ptr<ZmqGroup>>;

/// What two ranks say when they meet with these options.
std::vector<std::string> errors_of(const ZmqGroupOptions& a, const ZmqGroupOptions& b) {
  std::vector<std::string> errors(2);
  std::thread other([&] {
    const Met met = ZmqGroup::meet(b);
    if (!met.ok()) errors[1] = met.error().message;
  });
  const Met met = ZmqGroup::meet(a);
  if (!met.ok()) errors[0] = met.error().message;
  other.join();
  return errors;
}

TEST(ZmqGroup, RanksSeeOffersAndVotesOfAllInAnyOrder) {
  SocketDirectory directory;
  constexpr int kRanks = 4;
  // Longer than the threads: who is done first must not go before its last slice has left.
  std::vector<std::optional<Met>> groups(kRanks);
  std::vector<std::thread> threads;
  for (int rank = kRanks - 1; rank >= 0; rank--) {
    threads.emplace_back([&, rank] {
      Met& met = groups[static_cast<size_t>(rank)].emplace(
          ZmqGroup::meet(options_of(rank, kRanks, directory)));
      ASSERT_TRUE(met.ok()) << met.error().message;
      for (int peer = 0; peer < kRanks; peer++)
        EXPECT_EQ((*met)->offer(peer), base::cat("offer of ", peer));
      for (uint64_t round = 0; round < 3; round++) {
        const auto votes = (*met)->vote(round << 32 | static_cast<uint64_t>(rank));
        ASSERT_TRUE(votes.ok()) << votes.error().message;
        for (uint64_t peer = 0; peer < kRanks; peer++)
          EXPECT_EQ((*votes)[peer], round << 32 | peer);
      }
      ASSERT_TRUE((*met)->start(1).ok());
      EXPECT_EQ((*met)->exchange().arrive_and_wait(0, 16), base::Wait::kOk);
      EXPECT_EQ((*met)->exchange().arrive_and_wait(1, 16), base::Wait::kOk);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(directory.is_empty());
}

TEST(ZmqGroup, WhatDiffersIsNamed) {
  const struct {
    void (*change)(ZmqGroupOptions&);
    const char* ours;
    const char* theirs;
  } cases[] = {
      {[](ZmqGroupOptions& o) { o.slice_bytes_max = 256; }, "slices of 128", "slices of 256"},
      {[](ZmqGroupOptions& o) { o.record_bytes_max = 301; }, "records of 300", "records of 301"},
      {[](ZmqGroupOptions& o) { o.terms = "--exchange shm"; }, "--exchange auto", "--exchange shm"},
      {[](ZmqGroupOptions& o) { o.terms = "a\x1b[1m"; }, "--exchange auto", "a?[1m"},
  };
  for (const auto& one : cases) {
    SocketDirectory directory;
    ZmqGroupOptions other = options_of(1, 2, directory);
    one.change(other);
    const auto errors = errors_of(options_of(0, 2, directory), other);
    // Who looks first says what differs; the other may only see that it has gone.
    const std::string both = errors[0] + errors[1];
    EXPECT_NE(both.find(one.theirs), std::string::npos) << both;
    EXPECT_NE(both.find(one.ours), std::string::npos) << both;
    EXPECT_FALSE(errors[0].empty() || errors[1].empty());
    EXPECT_TRUE(directory.is_empty());
  }
}

/// A peer that sends one frame, made from the hello it got.
template <class Change>
std::string error_after(const SocketDirectory& directory, Change change) {
  std::thread peer([&] {
    auto context = ZmqContext::create();
    auto socket = PairSocket::open(
        **context, {.endpoint = directory.endpoint(0, 1), .message_bytes_max = 1 << 20});
    ASSERT_TRUE(socket.ok());
    std::vector<std::byte> bytes;
    while (bytes.empty()) {
      if (const auto hello = (*socket)->receive()) bytes.assign(hello->begin(), hello->end());
      std::this_thread::yield();
    }
    bytes[16] = std::byte{1};
    change(bytes);
    EXPECT_TRUE((*socket)->send(bytes));
    // Stays until the other has gone, so that the frame arrives.
    while ((*socket)->link() != PairSocket::Link::kDown) std::this_thread::yield();
  });
  const Met met = ZmqGroup::meet(options_of(0, 2, directory));
  peer.join();
  return met.ok() ? "" : met.error().message;
}

TEST(ZmqGroup, HellosThatAreNoneAreRefused) {
  using Bytes = std::vector<std::byte>;
  const auto poke = [](Bytes& bytes, size_t offset, auto value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  };
  const std::pair<const char*, std::function<void(Bytes&)>> cases[] = {
      {"is damaged", [&](Bytes& b) { poke(b, 64 + 40, ~uint32_t{0}); }},
      {"is damaged", [&](Bytes& b) { poke(b, 64 + 44, uint32_t{257}); }},
      {"numerics 99", [&](Bytes& b) { poke(b, 64, uint32_t{99}); }},
      {"of 3 ranks", [&](Bytes& b) { poke(b, 64 + 4, uint32_t{3}); }},
      {"another group", [&](Bytes& b) { poke(b, 24, uint64_t{5}); }},
      {"in the name of rank 7", [&](Bytes& b) { poke(b, 16, uint32_t{7}); }},
      {"no hello", [&](Bytes& b) { poke(b, 12, uint32_t{2}); }},
      {"no hello", [&](Bytes& b) { b.resize(64 + 8), poke(b, 48, uint64_t{8}); }},
  };
  for (const auto& [text, change] : cases) {
    SocketDirectory directory;
    const std::string error = error_after(directory, change);
    EXPECT_NE(error.find(text), std::string::npos) << text << ": " << error;
  }
}

TEST(ZmqGroup, WhoDoesNotComeIsNamed) {
  SocketDirectory directory;
  ZmqGroupOptions options = options_of(1, 2, directory);
  options.meet_timeout_ns = 30'000'000;
  const Met met = ZmqGroup::meet(options);
  ASSERT_FALSE(met.ok());
  EXPECT_EQ(met.error().code, base::Code::kTimeout);
  EXPECT_NE(met.error().message.find("rank 0 of 2 did not come to ipc://"), std::string::npos);
}

TEST(ZmqGroup, WhoEndsBeforeItsVoteIsLost) {
  SocketDirectory directory;
  std::thread other([&] { EXPECT_TRUE(ZmqGroup::meet(options_of(1, 2, directory)).ok()); });
  const Met met = ZmqGroup::meet(options_of(0, 2, directory));
  ASSERT_TRUE(met.ok()) << met.error().message;
  const auto votes = (*met)->vote(1);
  other.join();
  ASSERT_FALSE(votes.ok());
  EXPECT_EQ(votes.error().code, base::Code::kPeerLost);
}

TEST(ZmqGroup, SocketsHaveMode0600AndTcpIsRefused) {
  SocketDirectory directory;
  auto context = ZmqContext::create();
  ASSERT_TRUE(context.ok());
  const std::string endpoint = directory.endpoint(0, 1);
  {
    auto socket = PairSocket::open(
        **context,
        {.endpoint = endpoint, .side = PairSocket::Side::kBinds, .message_bytes_max = 100});
    ASSERT_TRUE(socket.ok()) << socket.error().message;
    struct stat status {};
    ASSERT_EQ(stat(endpoint.substr(kIpc.size()).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  EXPECT_TRUE(directory.is_empty());
  const auto tcp = PairSocket::open(**context, {.endpoint = "tcp://127.0.0.1:5555"});
  ASSERT_FALSE(tcp.ok());
  EXPECT_NE(tcp.error().message.find("must be ipc://"), std::string::npos);
}

TEST(ZmqGroup, OffersThatDoNotFitAreRefused) {
  SocketDirectory directory;
  ZmqGroupOptions options = options_of(0, 2, directory);
  options.offer = std::string(kHelloTextBytesMax + 1, 'x');
  const Met met = ZmqGroup::meet(options);
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find("shorter path"), std::string::npos);
}

}  // namespace
}  // namespace proto
