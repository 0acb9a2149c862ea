// KV arenas: what one process left is kept by the next if everything about it is right, and is made
// anew, with the reason, if anything is not.
#include "shm/kv_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "base/cat.h"

namespace shm {
namespace {

using base::Code;
constexpr int32_t kPositions = base::kKvBlockPositions;

std::vector<int32_t> tokens_from(int32_t first) {
  std::vector<int32_t> tokens(kPositions);
  for (int32_t i = 0; i < kPositions; i++) tokens[static_cast<size_t>(i)] = first + i;
  return tokens;
}

class KvArenaTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/numoe-kv-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/kv.0";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static KvIdentity identity() {
    KvIdentity identity;
    identity.model = {.low = 11, .high = 12};
    identity.plan_hash = 13;
    identity.pool_bytes = 5000;
    identity.kv_type = 1;
    identity.block_count = 4;
    identity.rank_count = 2;
    return identity;
  }
  static Hash128 root() { return kv_chain_root(identity()); }

  /// A pool of 0x77 and two sealed blocks, the second behind the first; not held any more.
  void leave_arena() {
    auto found = find_kv_arena(path_, identity(), 0);
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_EQ(found->stamp, 0u);
    auto arena = KvArena::create(std::move(*found), {.stamp = 99});
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    std::memset(arena->pool().data(), 0x77, arena->pool().size());
    seal_entry(arena->entries()[1], {.previous = root(), .near = 3}, tokens_from(0));
    seal_entry(arena->entries()[2],
               {.previous = arena->entries()[1].chain, .first_position = kPositions, .near = 6},
               tokens_from(64));
  }
  /// Why what lies there is not kept; "kept" if it is.
  std::string verdict(const KvIdentity& expected) {
    const auto found = find_kv_arena(path_, expected, 0);
    if (!found.ok()) return base::cat("error: ", found.error().message);
    EXPECT_EQ(found->stamp == 0, !found->why_new.empty());
    return found->stamp == 0 ? found->why_new : "kept";
  }

  std::string directory_, path_;
};

TEST_F(KvArenaTest, RoundTrip) {
  {
    auto found = find_kv_arena(path_, identity(), 0);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->stamp, 0u);
    EXPECT_EQ(found->why_new, "");
    auto arena = KvArena::create(std::move(*found), {.stamp = 99});
    ASSERT_TRUE(arena.ok()) << arena.error().message;
    EXPECT_EQ(arena->entries().size(), 4u);
    EXPECT_EQ(arena->pool().size(), 5000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->pool().data()) % 4096, 0u);
    const std::byte zero{0};
    EXPECT_TRUE(std::all_of(arena->pool().begin(), arena->pool().end(),
                            [&](std::byte byte) { return byte == zero; }));
    for (const KvBlockEntry& entry : arena->entries()) EXPECT_FALSE(is_sealed(entry));
  }
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  std::filesystem::remove(path_);
  leave_arena();
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->stamp, 99u);
  const auto arena = KvArena::adopt(std::move(*found));
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_EQ(arena->header().stamp, 99u);
  for (const std::byte byte : arena->pool()) ASSERT_EQ(byte, std::byte{0x77});
  EXPECT_FALSE(is_valid(arena->entries()[0], root()));
  EXPECT_TRUE(is_valid(arena->entries()[1], root()));
  EXPECT_TRUE(is_valid(arena->entries()[2], root()));
  EXPECT_EQ(arena->entries()[2].previous, arena->entries()[1].chain);
  EXPECT_EQ(arena->entries()[2].tokens[5], 69);
}

TEST_F(KvArenaTest, MadeAnewNothingOfTheOldOneIsLeft) {
  leave_arena();
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  const auto arena = KvArena::create(std::move(*found), {.stamp = 100});
  ASSERT_TRUE(arena.ok()) << arena.error().message;
  EXPECT_EQ(arena->header().stamp, 100u);
  for (const KvBlockEntry& entry : arena->entries()) EXPECT_FALSE(is_sealed(entry));
  for (const std::byte byte : arena->pool()) ASSERT_EQ(byte, std::byte{0});
}

// Other ranks have no table, and their pools begin right behind the header's page.
TEST_F(KvArenaTest, OnlyTheLeaderHasATable) {
  KvIdentity second = identity();
  second.rank = 1;
  auto found = find_kv_arena(path_, second, 0);
  ASSERT_TRUE(found.ok());
  const auto arena = KvArena::create(std::move(*found), {.stamp = 5});
  ASSERT_TRUE(arena.ok());
  EXPECT_TRUE(arena->entries().empty());
  EXPECT_EQ(arena->header().data_offset, 4096u);
}

TEST_F(KvArenaTest, OneOwnerAtATime) {
  leave_arena();
  auto first = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(first.ok());
  const auto second = find_kv_arena(path_, identity(), 0);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  {
    const auto arena = KvArena::adopt(std::move(*first));
    ASSERT_TRUE(arena.ok());
    EXPECT_FALSE(find_kv_arena(path_, identity(), 3'000'000).ok());
  }
  EXPECT_TRUE(find_kv_arena(path_, identity(), 0).ok());
}

TEST_F(KvArenaTest, AKilledOwnerLetsGo) {
  leave_arena();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto found = find_kv_arena(path_, identity(), 0);
    if (!found.ok()) _exit(1);
    const auto arena = KvArena::adopt(std::move(*found));
    if (!arena.ok()) _exit(2);
    (void)!write(ready[1], "r", 1);
    for (;;) pause();
  }
  char word;
  ASSERT_EQ(read(ready[0], &word, 1), 1);
  EXPECT_EQ(find_kv_arena(path_, identity(), 0).error().code, Code::kUnavailable);
  kill(child, SIGKILL);
  // Waits for the lock, which goes while the process ends.
  EXPECT_TRUE(find_kv_arena(path_, identity(), 10'000'000'000).ok());
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

// A file that was removed under its owner does not keep a new one from being made.
TEST_F(KvArenaTest, ARemovedFileIsMadeAgain) {
  leave_arena();
  auto old = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(old.ok());
  std::filesystem::remove(path_);
  const auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->stamp, 0u);
}

TEST_F(KvArenaTest, EveryDamagedByteOfTheHeaderIsNoticed) {
  leave_arena();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  for (size_t at = 0; at < sizeof(KvArenaHeader); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      file.seekg(static_cast<std::streamoff>(at));
      const int original = file.get();
      const auto put = [&](int byte) {
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte));
        file.flush();
      };
      put(original ^ flip);
      EXPECT_NE(verdict(identity()), "kept") << "byte " << at << " xor " << flip;
      put(original);
    }
  }
  EXPECT_EQ(verdict(identity()), "kept");
}

bool is_of_near(size_t at) {
  const auto in = [&](size_t begin, size_t bytes) { return at >= begin && at < begin + bytes; };
  return in(offsetof(KvBlockEntry, near), sizeof KvBlockEntry::near) ||
         in(offsetof(KvBlockEntry, near_check), sizeof KvBlockEntry::near_check);
}

// Every byte of the table: a sealed entry loses its seal, one that is not sealed does not get one.
TEST_F(KvArenaTest, EveryDamagedByteOfTheTableIsHarmless) {
  leave_arena();
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  const auto arena = KvArena::adopt(std::move(*found));
  ASSERT_TRUE(arena.ok());
  drop_entry(arena->entries()[2]);
  // As after a crash between the seal's going and anything else; the hash is gone too.
  for (size_t block = 0; block < 4; block++) {
    KvBlockEntry& entry = arena->entries()[block];
    const KvBlockEntry original = entry;
    EXPECT_EQ(is_valid(entry, root()), block == 1);
    EXPECT_EQ(near_is_valid(entry), block == 1);
    for (size_t at = 0; at < sizeof entry; at++) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        reinterpret_cast<uint8_t*>(&entry)[at] ^= static_cast<uint8_t>(flip);
        // What says which near block goes with it may be damaged alone: then none does.
        if (block == 1 && is_of_near(at)) {
          EXPECT_FALSE(near_is_valid(entry)) << "byte " << at;
        } else {
          EXPECT_FALSE(is_valid(entry, root())) << "block " << block << " byte " << at;
        }
        entry = original;
      }
    }
    // The whole state at once: the seal of what was dropped, without its hash.
    if (block == 1) continue;
    entry.state = kKvBlockSealed;
    EXPECT_FALSE(is_valid(entry, root())) << "block " << block;
    entry = original;
  }
}

// The checks behind the checksum: each field wrong in a header whose checksum is right.
TEST_F(KvArenaTest, EveryFieldIsCheckedByItself) {
  leave_arena();
  const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const File file(fd);
  KvArenaHeader header;
  ASSERT_EQ(pread(fd, &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  using H = KvArenaHeader;
  const struct {
    const char* says;
    std::function<void(H&)> damage;
  } cases[] = {
      {"kept", [](H&) {}},
      {"NUMOEKVC", [](H& h) { h.magic[7] = 'X'; }},
      {"another version of numoe", [](H& h) { h.layout_version = kKvArenaLayoutVersion + 1; }},
      {"sizes", [](H& h) { h.header_bytes = 128; }},
      {"sizes", [](H& h) { h.entry_bytes = 128; }},
      {"sizes", [](H& h) { h.entry_count = 5; }},
      {"it says", [](H& h) { h.file_bytes += 4096; }},
      {"offsets", [](H& h) { h.table_offset = 512; }},
      {"offsets", [](H& h) { h.data_offset += 64; }},
      {"offsets", [](H& h) { h.data_offset = ~uint64_t{63}; }},
      {"stamp", [](H& h) { h.stamp = 0; }},
      {"reserved", [](H& h) { h.reserved[127] = 1; }},
      {"another version of numoe", [](H& h) { h.identity.numerics_version++; }},
      {"another model", [](H& h) { h.identity.model.low++; }},
      {"another model", [](H& h) { h.identity.model.high++; }},
      {"another split", [](H& h) { h.identity.plan_hash++; }},
      {"another split", [](H& h) { h.identity.rank = 1; }},
      {"another split", [](H& h) { h.identity.rank_count = 1; }},
      {"another --kv-type", [](H& h) { h.identity.kv_type++; }},
      {"another --isa", [](H& h) { h.identity.layout++; }},
      {"another NUMA node", [](H& h) { h.identity.node = 1; }},
      {"another size", [](H& h) { h.identity.block_count = ~uint32_t{0}; }},
      {"another size", [](H& h) { h.identity.block_positions = 32; }},
      {"another size", [](H& h) { h.identity.pool_bytes = ~uint64_t{0}; }},
      {"kept", [](H&) {}},
  };
  for (const auto& [says, damage] : cases) {
    KvArenaHeader wrong = header;
    damage(wrong);
    wrong.header_checksum = checksum_of(wrong);
    ASSERT_EQ(pwrite(fd, &wrong, sizeof wrong, 0), static_cast<ssize_t>(sizeof wrong));
    const std::string message = verdict(identity());
    EXPECT_NE(message.find(says), std::string::npos) << says << ": " << message;
  }
}

TEST_F(KvArenaTest, ShorterOrLongerFilesAreMadeAnew) {
  leave_arena();
  const auto bytes = static_cast<off_t>(std::filesystem::file_size(path_));
  for (const off_t size : {off_t{1}, off_t{255}, off_t{256}, bytes - 1, bytes + 4096}) {
    ASSERT_EQ(truncate(path_.c_str(), size), 0);
    const std::string why = verdict(identity());
    EXPECT_TRUE(why != "kept" && !why.starts_with("error")) << size << ": " << why;
  }
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(KvArena::create(std::move(*found), {.stamp = 7}).ok());
  EXPECT_EQ(verdict(identity()), "kept");
}

// A creator that dies between making the file and writing the magic leaves zeros or nothing.
TEST_F(KvArenaTest, BarelyBegunAndForeignFilesAreMadeAnew) {
  std::ofstream(path_) << std::string(9000, '\0');
  EXPECT_NE(verdict(identity()).find("NUMOEKVC"), std::string::npos);
  std::ofstream(path_) << std::string(9000, 'q');
  EXPECT_NE(verdict(identity()).find("NUMOEKVC"), std::string::npos);
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(verdict(identity()).find("is no file"), std::string::npos);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_TRUE(verdict(identity()).starts_with("error"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/shm", path_);
  EXPECT_TRUE(verdict(identity()).starts_with("error"));
}

// Between looking and mapping somebody who does not care for locks changes it.
TEST_F(KvArenaTest, WhatChangesAfterTheLookIsNotAdopted) {
  leave_arena();
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  std::fstream(path_, std::ios::in | std::ios::out | std::ios::binary).seekp(112).put('x');
  const auto arena = KvArena::adopt(std::move(*found));
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.error().code, Code::kBrokenFile);
}

TEST_F(KvArenaTest, AFullTmpfsIsAnErrorAndLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0) {
      _exit(77);
    }
    KvIdentity large = identity();
    large.pool_bytes = 3u << 20;
    auto found = find_kv_arena(path_, large, 0);
    if (!found.ok()) _exit(1);
    const auto arena = KvArena::create(std::move(*found), {.stamp = 7});
    if (arena.ok()) _exit(2);
    if (arena.error().code != Code::kNoSpace) _exit(3);
    _exit(std::filesystem::is_empty(directory_) ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The child is stopped after each of its instructions while it seals and drops: whatever it has
// done by then, a reader finds a block whole and right, or not at all.
TEST_F(KvArenaTest, ADeathAtAnyInstructionLeavesARightEntryOrNone) {
  leave_arena();
  auto found = find_kv_arena(path_, identity(), 0);
  ASSERT_TRUE(found.ok());
  const auto arena = KvArena::adopt(std::move(*found));
  ASSERT_TRUE(arena.ok());
  KvBlockEntry& entry = arena->entries()[0];
  constexpr int kGenerations = 4;
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    for (int32_t g = 0; g < kGenerations; g++) {
      seal_entry(entry,
                 {.previous = g == 0 ? root() : Hash128{.low = 3, .high = 4},
                  .first_position = g * kPositions,
                  .near = g},
                 tokens_from(g * 1000));
      drop_entry(entry);
    }
    _exit(0);
  }
  int status = 0, steps = 0;
  bool seen[kGenerations] = {}, seen_none = false;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "ptrace is forbidden here";
  while (WIFSTOPPED(status)) {
    if (is_sealed(entry)) {
      ASSERT_TRUE(is_valid(entry, root())) << "after " << steps << " instructions";
      const int32_t g = entry.tokens[0] / 1000;
      ASSERT_EQ(entry.first_position, g * kPositions);
      seen[g] = true;
    } else {
      seen_none = true;
    }
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    steps++;
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_GT(steps, 500);
  EXPECT_TRUE(seen_none);
  for (const bool generation : seen) EXPECT_TRUE(generation);
}

// The chain knows everything that the bits of a block depend on, and nothing else.
TEST_F(KvArenaTest, TheChainDependsOnModelArithmeticAndTokensOnly) {
  std::vector<Hash128> chains;
  const auto chain_of = [](const KvIdentity& identity, int32_t first) {
    return kv_chain(kv_chain_root(identity), tokens_from(first));
  };
  chains.push_back(chain_of(identity(), 0));
  chains.push_back(chain_of(identity(), 1));
  KvIdentity other = identity();
  const auto add = [&] {
    chains.push_back(chain_of(other, 0));
    other = identity();
  };
  other.model.low++, add();
  other.model.high++, add();
  other.numerics_version++, add();
  other.kv_type++, add();
  other.layout++, add();
  other.block_positions = 32, add();
  for (size_t a = 0; a < chains.size(); a++)
    for (size_t b = a + 1; b < chains.size(); b++) EXPECT_FALSE(chains[a] == chains[b]);
  other.plan_hash++;
  other.rank = 1;
  other.rank_count = 3;
  other.block_count = 1000;
  other.pool_bytes = 1;
  other.node = 1;
  EXPECT_EQ(chain_of(other, 0), chains[0]);
}

}  // namespace
}  // namespace shm
