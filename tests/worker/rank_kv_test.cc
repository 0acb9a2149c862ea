// Two ranks as processes that end and come again: whether they keep their KV pools or make new
// ones is the same for both, over both exchanges, whatever happened to either pool meanwhile.
#include "worker/rank_kv.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/proto/zmq_ranks.h"
#include "worker/leader.h"
#include "worker/rank_host.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

/// An instance: its directory stays while groups come and go.
class RankKvTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-rank-kv-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  RankHostOptions options(int rank) {
    RankHostOptions options;
    options.model_path = std::string(NUMOE_SOURCE_DIR) + "/tests/golden/models/qwen3moe-q4_k.gguf";
    options.rank = rank;
    options.rank_count = ranks_;
    options.group_id = base::cat("group-", groups_);
    options.broker_endpoint = base::cat("ipc://", sockets_.path(), "/broker");
    options.arena_directory = directory_;
    options.context = context_;
    options.exchange = exchange_;
    options.oversubscribed = true;
    options.named_kv = true;
    return options;
  }

  struct Outcome {
    std::vector<int32_t> tokens;
    uint64_t columns = 0;
    RankReport report;
  };
  /// One life of the group: generates 20 tokens after a prompt of 150.
  Outcome live() {
    groups_++;
    std::vector<pid_t> followers;
    for (int rank = 1; rank < ranks_; rank++) {
      followers.push_back(fork());
      if (followers.back() == 0) follow(rank);
    }
    Outcome outcome;
    lead(outcome);
    for (const pid_t follower : followers) {
      int status = 0;
      waitpid(follower, &status, 0);
      EXPECT_EQ(status, 0);
    }
    return outcome;
  }
  [[noreturn]] void follow(int rank) {
    auto host = RankHost::open(options(rank));
    if (!host.ok() || !(*host)->load({}).ok()) _exit(1);
    while ((*host)->follow(50'000'000).ok()) {
    }
    _exit(0);
  }
  void lead(Outcome& outcome) {
    auto host = RankHost::open(options(0));
    ASSERT_TRUE(host.ok()) << host.error().message;
    const base::Status loaded = (*host)->load({});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    outcome.report = (*host)->report();
    Leader leader((*host)->runner(),
                  {.token_count = 100, .sealed_blocks = (*host)->sealed_blocks()});
    std::vector<int32_t> prompt(150);
    for (size_t i = 0; i < prompt.size(); i++) prompt[i] = static_cast<int32_t>(i * i % 91);
    leader.on_generate({.request_id = 1, .prompt = prompt, .max_tokens = 20}, "", 0);
    while (leader.has_work()) ASSERT_TRUE(leader.tick(0).ok());
    for (const Traced& sent : leader.take_outbox()) {
      if (const auto* chunk = std::get_if<proto::TokenChunk>(&sent.body))
        outcome.tokens.insert(outcome.tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
    }
    outcome.columns = leader.stats().columns;
  }

  void expect_fresh(const std::string& note) {
    const Outcome outcome = live();
    EXPECT_EQ(outcome.report.kv_blocks_found, 0);
    EXPECT_NE(outcome.report.kv_note.find(note), std::string::npos) << outcome.report.kv_note;
    EXPECT_EQ(outcome.report.kv_note.empty(), note.empty()) << outcome.report.kv_note;
    EXPECT_EQ(outcome.columns, 169u);
    EXPECT_EQ(outcome.tokens, first_.tokens);
  }
  void expect_kept() {
    const Outcome outcome = live();
    EXPECT_EQ(outcome.report.kv_blocks_found, 2);
    EXPECT_EQ(outcome.report.kv_note, "");
    EXPECT_EQ(outcome.columns, 169u - 128);
    EXPECT_EQ(outcome.tokens, first_.tokens);
  }
  /// Waits until a process has that file open; false if that takes too long.
  static bool is_opened_by(pid_t process, const std::string& path) {
    const base::SteadyClock clock;
    for (const base::TimeNs end = clock.now() + 20'000'000'000; clock.now() < end;) {
      std::error_code error;
      for (const auto& fd : fs::directory_iterator(base::cat("/proc/", process, "/fd"), error)) {
        if (fs::read_symlink(fd.path(), error) == path) return true;
      }
    }
    return false;
  }
  std::string pool(int rank) const { return base::cat(directory_, "/kv.", rank); }

  std::string directory_;
  proto::SocketDirectory sockets_;
  const char* exchange_ = "auto";
  int ranks_ = 2;
  int64_t context_ = 256;
  int groups_ = 0;
  Outcome first_;
};

TEST_F(RankKvTest, PoolsAreKeptByAllOrByNobody) {
  for (const char* exchange : {"auto", "zmq"}) {
    SCOPED_TRACE(exchange);
    exchange_ = exchange;
    fs::remove(pool(0));
    fs::remove(pool(1));
    first_ = live();
    ASSERT_EQ(first_.tokens.size(), 20u);
    expect_kept();
    expect_kept();
    // A follower loses its pool; the leader; one is damaged.
    fs::remove(pool(1));
    expect_fresh("another rank");
    expect_kept();
    fs::remove(pool(0));
    expect_fresh("");
    expect_kept();
    std::fstream(pool(1), std::ios::in | std::ios::out | std::ios::binary).seekp(50).put('x');
    expect_fresh("another rank");
    expect_kept();
    std::fstream(pool(0), std::ios::in | std::ios::out | std::ios::binary).seekp(50).put('x');
    expect_fresh("damaged");
    expect_kept();
  }
  EXPECT_TRUE(sockets_.is_empty());
}

// Each rank finds a pool that is right by itself, but they are not of one meeting.
TEST_F(RankKvTest, PoolsOfDifferentMeetingsAreNotMixed) {
  first_ = live();
  fs::copy(pool(1), directory_ + "/old");
  fs::remove(pool(0));
  expect_fresh("");
  fs::rename(directory_ + "/old", pool(1));
  expect_fresh("another rank");
  expect_kept();
}

TEST_F(RankKvTest, OtherOptionsMakeNewPools) {
  ranks_ = 1;
  first_ = live();
  expect_kept();
  context_ = 320;
  expect_fresh("another size");
  expect_kept();
  ranks_ = 2;
  expect_fresh("another split");
  expect_kept();
}

// The next process of a rank comes while the one before still ends: it waits for the lock.
TEST_F(RankKvTest, APoolThatIsHeldIsAwaited) {
  ranks_ = 1;
  first_ = live();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto file = shm::open_file(pool(0), O_RDWR);
    if (!file.ok() || !shm::try_lock(*file, shm::Lock::kExclusive)) _exit(1);
    (void)!write(ready[1], "r", 1);
    _exit(is_opened_by(getppid(), pool(0)) ? 0 : 2);
  }
  char word;
  ASSERT_EQ(read(ready[0], &word, 1), 1);
  close(ready[1]);
  close(ready[0]);
  expect_kept();
  int status = 0;
  waitpid(holder, &status, 0);
  EXPECT_EQ(status, 0);
}

// Without a name nothing of a pool is left, not even while it is used.
TEST_F(RankKvTest, WithoutANameNothingIsLeft) {
  ranks_ = 1;
  RankHostOptions unnamed = options(0);
  unnamed.named_kv = false;
  auto host = RankHost::open(unnamed);
  ASSERT_TRUE(host.ok());
  ASSERT_TRUE((*host)->load({}).ok());
  EXPECT_TRUE(fs::is_empty(directory_));
  EXPECT_NE((*host)->sealed_blocks(), nullptr);
}

}  // namespace
}  // namespace worker
