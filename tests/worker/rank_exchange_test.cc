// Ranks as processes with a real model: which exchange they take, and that it changes no bit.
// Memory of its own, as in a container, is a tmpfs in a mount namespace.
#include "worker/rank_exchange.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/proto/zmq_ranks.h"
#include "worker/rank_host.h"

namespace worker {
namespace {

enum class Memory { kShared, kPrivate };

class ArenaDirectory {
 public:
  ArenaDirectory() {
    char name[] = "/dev/shm/numoe-test-XXXXXX";
    CHECK(mkdtemp(name) != nullptr, "no directory in /dev/shm");
    path = name;
  }
  ~ArenaDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

/// Puts an empty tmpfs over `path` that only this process sees.
bool hide_memory(const std::string& path) {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", path.c_str(), "tmpfs", 0, "size=64m,mode=700") == 0;
}

/// Whether the system lets us do that; tried in a process that ends.
bool can_hide_memory(const std::string& path) {
  const pid_t child = fork();
  if (child == 0) _exit(hide_memory(path) ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

struct Group {
  Group() {
    for (const ArenaDirectory& arena : arenas) options.push_back(rank_options(arena.path));
    options[1].rank = 1;
  }
  RankHostOptions rank_options(const std::string& arena) const {
    RankHostOptions rank;
    rank.model_path = std::string(NUMOE_SOURCE_DIR) + "/tests/golden/models/qwen3moe-q4_k.gguf";
    rank.rank_count = 2;
    rank.group_id = "test";
    rank.broker_endpoint = base::cat("ipc://", sockets.path(), "/broker");
    rank.arena_directory = arena;
    rank.context = 64;
    rank.oversubscribed = true;
    return rank;
  }
  bool is_clean() const {
    return sockets.is_empty() && std::filesystem::is_empty(arenas[0].path) &&
           std::filesystem::is_empty(arenas[1].path);
  }

  proto::SocketDirectory sockets;
  ArenaDirectory arenas[2];
  std::vector<RankHostOptions> options;  // [ranks]
};

/// A follower in a process of its own; it ends when the leader does.
class FollowerProcess {
 public:
  FollowerProcess(const RankHostOptions& options, Memory memory) : pid_(fork()) {
    if (pid_ != 0) return;
    if (memory == Memory::kPrivate && !hide_memory(options.arena_directory)) _exit(3);
    auto host = RankHost::open(options);
    if (!host.ok()) _exit(1);
    if (!(*host)->load({}).ok()) _exit(2);
    while ((*host)->follow(50'000'000).ok()) {
    }
    _exit(0);
  }
  int exit_code() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  const pid_t pid_;
};

struct Outcome {
  std::optional<base::Error> error = {};
  RankReport report = {};
  std::vector<float> logits = {};  // of all positions
};

Outcome lead(const RankHostOptions& options) {
  auto host = RankHost::open(options);
  if (!host.ok()) return {.error = host.error()};
  if (const base::Status loaded = (*host)->load({}); !loaded.ok()) return {.error = loaded.error()};
  Outcome outcome{.report = (*host)->report()};
  engine::Step step;
  step.block_tables.push_back({0});
  for (const int columns : {5, 1, 1}) {
    step.columns.clear();
    for (int i = 0; i < columns; i++) {
      const auto position =
          static_cast<int64_t>(outcome.logits.size()) / (*host)->shape().vocabulary + i;
      step.columns.push_back({.token = static_cast<int32_t>(position) + 3,
                              .sequence = 0,
                              .position = position,
                              .wants_logits = 1});
    }
    const auto output = (*host)->runner().run(step);
    if (!output.ok()) return {.error = output.error()};
    outcome.logits.insert(outcome.logits.end(), output->logits.begin(), output->logits.end());
  }
  return outcome;
}

Outcome run(Group& group, const char* choice, Memory memory) {
  for (RankHostOptions& rank : group.options) rank.exchange = choice;
  FollowerProcess follower(group.options[1], memory);
  Outcome outcome = lead(group.options[0]);
  EXPECT_EQ(follower.exit_code(), outcome.error ? 2 : 0);
  return outcome;
}

TEST(RankExchange, SharedMemoryIsTakenWhereItIsProvedAndNoExchangeChangesABit) {
  Group group;
  // Two directories, but both processes see both.
  const Outcome automatic = run(group, "auto", Memory::kShared);
  ASSERT_FALSE(automatic.error) << automatic.error->message;
  EXPECT_EQ(automatic.report.exchange, "shm");
  EXPECT_EQ(automatic.report.exchange_note, "");
  EXPECT_GT(automatic.logits.size(), 0u);

  const Outcome forced = run(group, "zmq", Memory::kShared);
  ASSERT_FALSE(forced.error) << forced.error->message;
  EXPECT_EQ(forced.report.exchange, "zmq");
  EXPECT_EQ(forced.report.exchange_note, "");
  EXPECT_EQ(forced.logits, automatic.logits);

  const Outcome demanded = run(group, "shm", Memory::kShared);
  ASSERT_FALSE(demanded.error) << demanded.error->message;
  EXPECT_EQ(demanded.report.exchange, "shm");
  EXPECT_EQ(demanded.logits, automatic.logits);
  EXPECT_TRUE(group.is_clean());
}

TEST(RankExchange, PrivateMemoryMeansZeroMqAWarningAndTheSameBits) {
  Group group;
  if (!can_hide_memory(group.arenas[1].path)) {
    GTEST_SKIP()
        << "memory of its own needs a mount namespace, which this system refuses: run as root";
  }
  const Outcome apart = run(group, "auto", Memory::kPrivate);
  ASSERT_FALSE(apart.error) << apart.error->message;
  EXPECT_EQ(apart.report.exchange, "zmq");
  EXPECT_NE(apart.report.exchange_note.find("ranks 0 and 1 do not share memory"), std::string::npos)
      << apart.report.exchange_note;
  EXPECT_NE(apart.report.exchange_note.find("--arena-dir"), std::string::npos);
  EXPECT_EQ(apart.logits, run(group, "auto", Memory::kShared).logits);

  const Outcome refused = run(group, "shm", Memory::kPrivate);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, base::Code::kUnsupported);
  EXPECT_NE(refused.error->message.find("--exchange shm: ranks 0 and 1 do not share memory"),
            std::string::npos)
      << refused.error->message;
  EXPECT_TRUE(group.is_clean());
}

TEST(RankExchange, ChoicesThatDifferAreRefused) {
  Group group;
  group.options[0].exchange = "zmq";
  FollowerProcess follower(group.options[1], Memory::kShared);
  const Outcome outcome = lead(group.options[0]);
  EXPECT_EQ(follower.exit_code(), 2);
  ASSERT_TRUE(outcome.error);
  // Who looks first names both; the other may only see that it has gone.
  if (outcome.error->code != base::Code::kPeerLost) {
    EXPECT_NE(outcome.error->message.find("--exchange auto"), std::string::npos);
    EXPECT_NE(outcome.error->message.find("--exchange zmq"), std::string::npos);
  }
  EXPECT_TRUE(group.is_clean());
}

TEST(RankExchange, ASingleRankMeetsNobody) {
  for (const char* choice : {"auto", "shm", "zmq"}) {
    Group group;
    group.options[0].exchange = choice;
    group.options[0].rank_count = 1;
    group.options[0].broker_endpoint = "";
    const Outcome outcome = lead(group.options[0]);
    ASSERT_FALSE(outcome.error) << outcome.error->message;
    EXPECT_EQ(outcome.report.exchange, "");
    EXPECT_TRUE(group.is_clean());
  }
}

TEST(RankExchange, EndpointsDifferForEveryPairAndGroupAndLieBesideTheBrokers) {
  RankExchangeOptions options;
  options.group_id = "g";
  options.broker_endpoint = "ipc:///run/x/broker.sock";
  const auto one = peer_endpoint(options, 0, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->starts_with("ipc:///run/x/"));
  EXPECT_EQ(*one, *peer_endpoint(options, 0, 1));
  EXPECT_NE(*one, *peer_endpoint(options, 0, 2));
  EXPECT_NE(*one, *peer_endpoint(options, 1, 2));
  options.group_id = "h";
  EXPECT_NE(*one, *peer_endpoint(options, 0, 1));
  options.broker_endpoint = "tcp://10.0.0.1:7000";
  EXPECT_FALSE(peer_endpoint(options, 0, 1).ok());
}

TEST(RankExchange, StrangersAreNamedOnceWhoeverDoesNotSeeWhom) {
  EXPECT_EQ(strangers({0b11, 0b11}), "");
  EXPECT_EQ(strangers({0b11, 0b10}), "ranks 0 and 1");
  EXPECT_EQ(strangers({0b01, 0b11}), "ranks 0 and 1");
  EXPECT_EQ(strangers({0b111, 0b111, 0b101}), "ranks 1 and 2");
  EXPECT_EQ(strangers({0b001, 0b010, 0b100}), "ranks 0 and 1 (and 2 more pairs)");
}

}  // namespace
}  // namespace worker
