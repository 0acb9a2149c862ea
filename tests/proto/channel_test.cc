// Both channels behind one contract, then what only ZeroMQ has: sockets, paths, incarnations.
#include "proto/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/cat.h"
#include "proto/envelope.h"
#include "proto/memory_channel.h"
#include "proto/zmq_channel.h"

namespace proto {
namespace {

constexpr base::TimeNs kSecond = 1'000'000'000;

class MemoryPair {
 public:
  std::unique_ptr<Channel> broker() { return network_.broker(); }
  std::unique_ptr<Channel> worker(std::string_view name) {
    return network_.connect(std::string(name));
  }

 private:
  base::ManualClock clock_;
  MemoryNetwork network_{clock_, {.queue_max = 20}};
};

/// A directory of its own for each test.
class Directory {
 public:
  Directory() {
    char path[] = "/tmp/numoe-test-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class ZmqPair {
 public:
  std::unique_ptr<Channel> broker() { return std::move(bind_broker(options_).value()); }
  std::unique_ptr<Channel> worker(std::string_view name) {
    return std::move(connect_worker(options_, name).value());
  }
  std::string socket_path() const { return options_.endpoint.substr(6); }

 private:
  Directory directory_;
  ZmqOptions options_{.endpoint = *ipc_endpoint(directory_.path(), "test"), .queue_max = 20};
};

template <class Pair>
class ChannelTest : public testing::Test {};
using Pairs = testing::Types<MemoryPair, ZmqPair>;
TYPED_TEST_SUITE(ChannelTest, Pairs);

Received next(Channel& channel) {
  for (int attempt = 0; attempt < 100; attempt++) {
    if (auto received = channel.receive()) return std::move(*received);
    channel.wait(kSecond / 10, {});
  }
  ADD_FAILURE() << "nothing came";
  return {};
}

/// Sends as a worker does: again if the connection is not there yet.
void send_until_sent(Channel& channel, std::string_view peer, const Message& message) {
  for (int attempt = 0; attempt < 1000; attempt++) {
    if (channel.send(peer, message).ok()) return;
    channel.wait(kSecond / 100, {});
  }
  ADD_FAILURE() << "never sent";
}

TYPED_TEST(ChannelTest, MessagesArriveWholeAndInOrder) {
  TypeParam pair;
  const auto broker = pair.broker();
  const auto worker = pair.worker("w#1");
  send_until_sent(*worker, kBroker, {{"hello", std::string("\0raw", 4), ""}});
  const Received hello = next(*broker);
  EXPECT_EQ(hello.peer, "w#1");
  EXPECT_EQ(hello.message.frames, (std::vector<std::string>{"hello", std::string("\0raw", 4), ""}));
  for (int i = 0; i < 10; i++) ASSERT_TRUE(broker->send("w#1", {{base::cat(i)}}).ok());
  for (int i = 0; i < 10; i++) {
    const Received received = next(*worker);
    EXPECT_EQ(received.peer, kBroker);
    EXPECT_EQ(received.message.frames.at(0), base::cat(i));
  }
  EXPECT_FALSE(worker->receive().has_value());
  EXPECT_FALSE(worker->wait(0, {}));
}

TYPED_TEST(ChannelTest, AnUnknownPeerIsAnErrorAtOnce) {
  TypeParam pair;
  const auto broker = pair.broker();
  const auto sent = broker->send("nobody#1", {{"x"}});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, base::Code::kPeerLost);
}

TYPED_TEST(ChannelTest, AFullQueueIsAnErrorAndNotAWait) {
  TypeParam pair;
  const auto broker = pair.broker();
  const auto worker = pair.worker("w#1");
  send_until_sent(*worker, kBroker, {{"hello"}});
  next(*broker);
  // The worker reads nothing: its queue, ours and the socket's buffers fill up.
  base::Status sent;
  int count = 0;
  for (; sent.ok() && count < 100000; count++)
    sent = broker->send("w#1", {{std::string(10000, 'x')}});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, base::Code::kUnavailable);
  EXPECT_LT(count, 400);
  // What was taken arrives whole.
  for (int i = 0; i < count - 1; i++)
    ASSERT_EQ(next(*worker).message.frames.at(0).size(), 10000u) << i << " of " << count;
}

TYPED_TEST(ChannelTest, TheNextIncarnationIsReachedAndTheOldOneNot) {
  TypeParam pair;
  const auto broker = pair.broker();
  for (int incarnation = 1; incarnation <= 20; incarnation++) {
    const std::string name = peer_name("w", static_cast<uint64_t>(incarnation));
    const auto worker = pair.worker(name);
    send_until_sent(*worker, kBroker, {{name}});
    const Received hello = next(*broker);
    EXPECT_EQ(hello.peer, name);
    EXPECT_EQ(hello.message.frames.at(0), name) << "the first message counts";
    ASSERT_TRUE(broker->send(name, {{"welcome"}}).ok());
    EXPECT_EQ(next(*worker).message.frames.at(0), "welcome");
  }
}

TYPED_TEST(ChannelTest, WhatIsTooLargeIsRefused) {
  TypeParam pair;
  const auto broker = pair.broker();
  const auto worker = pair.worker("w#1");
  send_until_sent(*worker, kBroker, {{"hello"}});
  next(*broker);
  const auto sent = broker->send("w#1", {{"envelope", std::string(kMessageBytesMax + 1, 'x')}});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, base::Code::kInvalidArgument);
  ASSERT_TRUE(broker->send("w#1", {{"next"}}).ok());
  EXPECT_EQ(next(*worker).message.frames.at(0), "next");
}

TEST(MemoryChannel, LosesAndDelaysAsTold) {
  base::ManualClock clock;
  int sent = 0;
  MemoryNetwork network(clock, {.fate = [&](std::string_view, std::string_view) {
                          sent++;
                          if (sent == 2) return Fate{.delays = {}};
                          return Fate{.delays = {sent == 1 ? 20 : 10}};
                        }});
  const auto broker = network.broker();
  const auto worker = network.connect("w");
  for (const char* text : {"late", "lost", "early"})
    ASSERT_TRUE(worker->send(kBroker, {{text}}).ok());
  EXPECT_FALSE(broker->receive().has_value());
  clock.advance(10);
  EXPECT_EQ(broker->receive()->message.frames.at(0), "early");
  EXPECT_FALSE(broker->receive().has_value());
  clock.advance(10);
  EXPECT_EQ(network.next_arrival(kBroker), 20);
  EXPECT_EQ(broker->receive()->message.frames.at(0), "late");
  EXPECT_FALSE(broker->receive().has_value());
  EXPECT_FALSE(network.next_arrival(kBroker).has_value());
}

TEST(MemoryChannel, RepeatsAndDisconnectsAsTold) {
  base::ManualClock clock;
  bool cut = false;
  MemoryNetwork network(clock, {.fate = [&](std::string_view, std::string_view) {
                          return Fate{.delays = {0, 10}, .disconnected = cut};
                        }});
  const auto broker = network.broker();
  const auto worker = network.connect("w");
  ASSERT_TRUE(worker->send(kBroker, {{"twice"}}).ok());
  EXPECT_EQ(broker->receive()->message.frames.at(0), "twice");
  EXPECT_FALSE(broker->receive().has_value());
  clock.advance(10);
  EXPECT_EQ(broker->receive()->message.frames.at(0), "twice");
  cut = true;
  EXPECT_EQ(worker->send(kBroker, {{"lost"}}).error().code, base::Code::kPeerLost);
  EXPECT_FALSE(broker->receive().has_value());
}

TEST(ZmqChannel, TheSocketIsPrivateAndGoesAway) {
  ZmqPair pair;
  {
    const auto broker = pair.broker();
    struct stat status {};
    ASSERT_EQ(::lstat(pair.socket_path().c_str(), &status), 0);
    EXPECT_TRUE(S_ISSOCK(status.st_mode));
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  EXPECT_NE(::access(pair.socket_path().c_str(), F_OK), 0);
}

TEST(ZmqChannel, AWorkerMayComeBeforeItsBroker) {
  ZmqPair pair;
  const auto worker = pair.worker("w#1");
  EXPECT_EQ(worker->send(kBroker, {{"x"}}).error().code, base::Code::kUnavailable);
  const auto broker = pair.broker();
  send_until_sent(*worker, kBroker, {{"hello"}});
  EXPECT_EQ(next(*broker).message.frames.at(0), "hello");
}

TEST(ZmqChannel, WaitAlsoWatchesDescriptors) {
  ZmqPair pair;
  const auto broker = pair.broker();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int watched[] = {ends[0]};
  EXPECT_FALSE(broker->wait(0, watched));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(broker->wait(kSecond, watched));
  ::close(ends[0]);
  ::close(ends[1]);
}

// As one waits for several: look whether there is something, and if not, watch the descriptor.
TEST(ZmqChannel, ADescriptorTellsOfEveryMessageThatWasNotThereBefore) {
  ZmqPair pair;
  const auto broker = pair.broker();
  const auto worker = pair.worker("w#1");
  for (int message = 0; message < 50; message++) {
    EXPECT_FALSE(broker->has_message());
    // The connection may be still under way.
    for (int tries = 0; !worker->send(kBroker, {{"hello"}}).ok(); tries++) {
      ASSERT_LT(tries, 10'000);
      poll(nullptr, 0, 1);
    }
    while (!broker->has_message()) {
      pollfd watched{broker->descriptor(), POLLIN, 0};
      ASSERT_EQ(poll(&watched, 1, 10'000), 1) << "waits although a message is on its way";
    }
    ASSERT_TRUE(broker->receive());
  }
}

TEST(ZmqChannel, BadEndpointsAreErrors) {
  EXPECT_FALSE(bind_broker({.endpoint = "tcp://*:5555"}).ok())
      << "nothing unauthenticated off the host";
  EXPECT_FALSE(bind_broker({.endpoint = "ipc://"}).ok());
  EXPECT_FALSE(bind_broker({.endpoint = "ipc:///no/such/directory/x"}).ok());
  const auto too_long = bind_broker({.endpoint = base::cat("ipc:///tmp/", std::string(103, 'x'))});
  ASSERT_FALSE(too_long.ok());
  EXPECT_NE(too_long.error().message.find("108 bytes, at most 107"), std::string::npos);
  EXPECT_FALSE(connect_worker({.endpoint = "ipc:///tmp/x"}, "").ok());
  EXPECT_FALSE(connect_worker({.endpoint = "ipc:///tmp/x"}, std::string(65, 'p')).ok());
}

TEST(IpcPath, IsShortWhateverTheNameAndBase) {
  Directory directory;
  const std::string long_base = base::cat(directory.path(), "/", std::string(120, 'd'));
  std::filesystem::create_directories(long_base);
  for (const std::string& base : {std::string(), long_base, std::string("/no/such/place"),
                                  std::string("relative"), directory.path()}) {
    const auto home = ipc_directory(base);
    ASSERT_TRUE(home.ok()) << home.error().message;
    struct stat status {};
    ASSERT_EQ(::lstat(home->c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    const auto endpoint = ipc_endpoint(*home, std::string(200, ' ') + "\xc3\xbc");
    ASSERT_TRUE(endpoint.ok());
    EXPECT_LE(endpoint->size() - 6, kIpcPathBytesMax);
  }
  EXPECT_TRUE(ipc_directory(directory.path())->starts_with(directory.path()));
  EXPECT_TRUE(ipc_directory(long_base)->starts_with("/tmp/"));
  EXPECT_NE(*ipc_endpoint("/tmp", "a"), *ipc_endpoint("/tmp", "b"));
  EXPECT_FALSE(ipc_endpoint("/" + std::string(100, 'd'), "a").ok());
}

TEST(IpcPath, ADirectoryOpenToOthersIsRefused) {
  Directory directory;
  const std::string path = *ipc_directory(directory.path());
  std::filesystem::permissions(path, std::filesystem::perms(0755));
  const auto again = ipc_directory(directory.path());
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("0700"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/tmp", path);
  EXPECT_FALSE(ipc_directory(directory.path()).ok());
}

}  // namespace
}  // namespace proto
