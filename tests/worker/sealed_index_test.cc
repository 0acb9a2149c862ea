// The index of sealed blocks against a plain model of it, and over tables that others left: dead
// leaders, damaged bytes.
#include "worker/sealed_index.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>

namespace worker {
namespace {

constexpr int32_t kPositions = base::kKvBlockPositions;
constexpr shm::Hash128 kRoot = {.low = 77, .high = 78};
using Tokens = std::vector<int32_t>;

/// Tokens of a tree of sequences that share beginnings: `branches` names the child at each block.
Tokens sequence_of(const std::vector<int>& branches) {
  Tokens tokens;
  for (const int branch : branches)
    for (int32_t i = 0; i < kPositions; i++) tokens.push_back(branch * 1000 + i);
  return tokens;
}

bool any(int32_t) {
  return true;
}

std::span<const int32_t> block_of(const Tokens& tokens, size_t index) {
  return std::span<const int32_t>(tokens).subspan(index * kPositions, kPositions);
}

TEST(SealedIndex, FindsTheLongestBeginning) {
  std::vector<shm::KvBlockEntry> table(8);
  SealedIndex index(table, kRoot);
  const Tokens tokens = sequence_of({1, 2, 3});
  EXPECT_TRUE(index.find(tokens, any).empty());
  index.seal({.block = 5, .previous = -1}, block_of(tokens, 0));
  index.seal({.block = 2, .previous = 5}, block_of(tokens, 1));
  index.seal({.block = 7, .previous = 2}, block_of(tokens, 2));
  EXPECT_EQ(index.find(tokens, any), (std::vector<int32_t>{5, 2, 7}));
  EXPECT_EQ(index.find(sequence_of({1, 2}), any), (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(index.find(sequence_of({1, 9, 3}), any), (std::vector<int32_t>{5}));
  EXPECT_TRUE(
      index.find(sequence_of({2}), any).empty());  // the same tokens, elsewhere in a sequence
  EXPECT_TRUE(index.find({}, any).empty());
  // One token of the last block.
  Tokens other = tokens;
  other.back()++;
  EXPECT_EQ(index.find(other, any), (std::vector<int32_t>{5, 2}));
  // Those that are lost last come last.
  EXPECT_EQ(index.sealed(), (std::vector<int32_t>{7, 2, 5}));
  index.forget(2);
  index.forget(2);
  index.forget(0);
  EXPECT_EQ(index.find(tokens, any), (std::vector<int32_t>{5}));
  EXPECT_EQ(index.sealed_count(), 2);
  // What was behind is found again when the gap is closed.
  index.seal({.block = 0, .previous = 5}, block_of(tokens, 1));
  EXPECT_EQ(index.find(tokens, any), (std::vector<int32_t>{5, 0, 7}));
}

// Of blocks that hold the same, one that is not in use.
TEST(SealedIndex, ManyMayHoldTheSame) {
  std::vector<shm::KvBlockEntry> table(6);
  SealedIndex index(table, kRoot);
  const Tokens tokens = sequence_of({1, 2});
  for (const int32_t block : {0, 2, 4}) {
    index.seal({.block = block, .previous = -1}, block_of(tokens, 0));
    index.seal({.block = block + 1, .previous = block}, block_of(tokens, 1));
  }
  std::vector<bool> used(6, false);
  const auto is_free = [&](int32_t block) { return !used[static_cast<size_t>(block)]; };
  for (int turn = 0; turn < 3; turn++) {
    const std::vector<int32_t> found = index.find(tokens, is_free);
    ASSERT_EQ(found.size(), 2u);
    for (const int32_t block : found) used[static_cast<size_t>(block)] = true;
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), true), 6);
  EXPECT_TRUE(index.find(tokens, is_free).empty());
  used[3] = false;  // of no use without the one before it
  EXPECT_TRUE(index.find(tokens, is_free).empty());
  used[0] = false;  // any one before it
  EXPECT_EQ(index.find(tokens, is_free), (std::vector<int32_t>{0, 3}));
}

TEST(SealedIndex, NearBlocksGoWithOneBlockUntilTheyAreOverwritten) {
  std::vector<shm::KvBlockEntry> table(3);
  const Tokens tokens = sequence_of({1, 2, 3});
  {
    SealedIndex index(table, kRoot, 4);
    index.seal({.block = 0, .previous = -1, .near = 3}, block_of(tokens, 0));
    index.seal({.block = 1, .previous = 0, .near = 2}, block_of(tokens, 1));
    index.seal({.block = 2, .previous = 1}, block_of(tokens, 2));
    EXPECT_EQ(index.near_of(0), 3);
    EXPECT_EQ(index.near_of(2), -1);
    index.forget_near(3);
    index.forget_near(0);  // nobody's
    EXPECT_EQ(index.near_of(0), -1);
  }
  SealedIndex index(table, kRoot, 4);
  EXPECT_EQ(index.find(tokens, any), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(index.sealed_near(), std::vector<int32_t>{2});
  index.forget(1);
  EXPECT_EQ(index.near_of(1), -1);
  EXPECT_TRUE(index.sealed_near().empty());
  index.seal({.block = 1, .previous = 0, .near = 2}, block_of(tokens, 1));
  // A pool of fewer near blocks knows nothing of the others.
  EXPECT_EQ(SealedIndex(table, kRoot, 2).near_of(1), -1);
}

TEST(SealedIndex, AnotherRootFindsNothing) {
  std::vector<shm::KvBlockEntry> table(2);
  const Tokens tokens = sequence_of({1});
  SealedIndex(table, kRoot).seal({.block = 0, .previous = -1}, block_of(tokens, 0));
  EXPECT_EQ(SealedIndex(table, kRoot).find(tokens, any).size(), 1u);
  SealedIndex other(table, {.low = 77, .high = 79});
  EXPECT_TRUE(other.find(tokens, any).empty());
  EXPECT_EQ(other.sealed_count(), 0);
}

// Random sealing and forgetting beside a map from all tokens up to a block's end to the blocks that
// hold them; now and then a new index takes over the table.
TEST(SealedIndex, AgreesWithAPlainMapAlsoWhenRebuilt) {
  constexpr int32_t kBlocks = 40;
  std::mt19937 random(2026);
  const auto below = [&](int count) { return static_cast<int>(random() % unsigned(count)); };
  std::vector<shm::KvBlockEntry> table(kBlocks);
  auto index = std::make_unique<SealedIndex>(table, kRoot);
  std::vector<Tokens> held(kBlocks);  // empty: not sealed
  const auto has = [&](const Tokens& prefix) {
    return std::find(held.begin(), held.end(), prefix) != held.end();
  };
  size_t longest = 0, found_blocks = 0;
  for (int round = 0; round < 20'000; round++) {
    std::vector<int> branches(static_cast<size_t>(1 + below(6)));
    for (int& branch : branches) branch = below(2);
    const Tokens tokens = sequence_of(branches);
    const std::vector<int32_t> found = index->find(tokens, any);
    size_t blocks = 0;
    while (blocks < branches.size() &&
           has({tokens.begin(), tokens.begin() + static_cast<long>((blocks + 1) * kPositions)}))
      blocks++;
    ASSERT_EQ(found.size(), blocks);
    for (size_t i = 0; i < found.size(); i++) {
      ASSERT_TRUE(std::equal(held[static_cast<size_t>(found[i])].begin(),
                             held[static_cast<size_t>(found[i])].end(), tokens.begin()));
      ASSERT_EQ(held[static_cast<size_t>(found[i])].size(), (i + 1) * kPositions);
    }
    longest = std::max(longest, blocks);
    found_blocks += blocks;
    // One more block of that sequence, in any place that is not on its way.
    const int32_t place = below(kBlocks);
    if (std::find(found.begin(), found.end(), place) == found.end()) {
      index->forget(place);
      held[static_cast<size_t>(place)].clear();
      if (blocks < branches.size() && below(8) > 0) {
        index->seal({.block = place, .previous = found.empty() ? -1 : found.back()},
                    block_of(tokens, blocks));
        held[static_cast<size_t>(place)] = {
            tokens.begin(), tokens.begin() + static_cast<long>((blocks + 1) * kPositions)};
      }
    }
    if (below(100) == 0) index = std::make_unique<SealedIndex>(table, kRoot);
    ASSERT_EQ(static_cast<size_t>(index->sealed_count()),
              kBlocks - static_cast<size_t>(std::count(held.begin(), held.end(), Tokens{})));
  }
  EXPECT_EQ(longest, 6u);
  EXPECT_GT(found_blocks, 10'000u);
}

// Whatever stands in a table: the index takes only what seal() could have written, and works on.
TEST(SealedIndex, DamagedTablesGiveRightBlocksOrNone) {
  constexpr int32_t kBlocks = 12;
  std::mt19937 random(7);
  size_t lost = 0, lost_near = 0;
  for (int round = 0; round < 2000; round++) {
    std::vector<shm::KvBlockEntry> table(kBlocks);
    std::vector<Tokens> held(kBlocks);
    const Tokens tokens = sequence_of({1, 2, 3, 4, 5, 6});
    {
      SealedIndex index(table, kRoot, 8);
      for (int32_t i = 0; i < 6; i++) {
        index.seal({.block = 2 * i, .previous = i == 0 ? -1 : 2 * i - 2, .near = 7 - i},
                   block_of(tokens, static_cast<size_t>(i)));
      }
    }
    auto* bytes = reinterpret_cast<uint8_t*>(table.data());
    for (unsigned i = 0; i <= random() % 4; i++) {
      const size_t at = random() % (kBlocks * sizeof table[0]);
      if (random() % 8 == 0) {  // a whole entry over another
        table[random() % kBlocks] = table[random() % kBlocks];
      } else {
        bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1u << random() % 8));
      }
    }
    SealedIndex index(table, kRoot, 8);
    const std::vector<int32_t> found = index.find(tokens, any);
    lost += 6 - found.size();
    for (size_t i = 0; i < found.size(); i++) {
      const int32_t near = index.near_of(found[i]);
      if (near < 0) lost_near++;
      ASSERT_TRUE(near == -1 || near == 7 - static_cast<int32_t>(i)) << near;
    }
    for (size_t i = 0; i < found.size(); i++) {
      const shm::KvBlockEntry& entry = table[static_cast<size_t>(found[i])];
      ASSERT_EQ(entry.first_position, static_cast<int64_t>(i) * kPositions);
      ASSERT_TRUE(std::equal(entry.tokens, entry.tokens + kPositions, block_of(tokens, i).begin()));
    }
    for (int32_t block = 0; block < kBlocks; block++) index.forget(block);
    EXPECT_EQ(index.sealed_count(), 0);
    index.seal({.block = 3, .previous = -1}, block_of(tokens, 0));
    EXPECT_EQ(index.find(tokens, any), std::vector<int32_t>{3});
  }
  EXPECT_GT(lost, 1000u);
  EXPECT_GT(lost_near, 10u);
}

/// What a leader and its pool share with the next one.
struct Shared {
  static constexpr int32_t kBlocks = 16;
  std::atomic<uint64_t> turns;
  shm::KvBlockEntry table[kBlocks];
  int32_t pool[kBlocks][kPositions];  // "keys and values": the tokens and the generation
};

/// Takes blocks, writes them, seals them, without end. Sequences of four blocks.
[[noreturn]] void lead_for_ever(Shared& shared, uint32_t seed) {
  std::mt19937 random(seed);
  SealedIndex index(shared.table, kRoot);
  for (;;) {
    const Tokens tokens = sequence_of({int(random() % 50), int(random() % 50), 3, 4});
    int32_t previous = -1;
    const auto first = static_cast<int32_t>(random() % Shared::kBlocks);
    for (int32_t i = 0; i < 4; i++) {
      const int32_t block = (first + i) % Shared::kBlocks;
      index.forget(block);
      // The step: all ranks write, here one.
      const auto own = block_of(tokens, static_cast<size_t>(i));
      for (int32_t p = 0; p < kPositions; p++)
        std::atomic_ref<int32_t>(shared.pool[block][p])
            .store(own[static_cast<size_t>(p)], std::memory_order_relaxed);
      index.seal({.block = block, .previous = previous}, own);
      previous = block;
    }
    shared.turns.fetch_add(1);
  }
}

TEST(SealedIndex, AfterKillMinus9EverySealedBlockHoldsItsTokens) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* shared = new (memory) Shared();
  std::mt19937 random(9);
  int sealed = 0;
  for (uint32_t round = 0; round < 60; round++) {
    const uint64_t end = shared->turns.load() + 1 + random() % 300;
    const pid_t child = fork();
    if (child == 0) lead_for_ever(*shared, round);
    while (shared->turns.load() < end) {
    }
    for (unsigned i = 0; i < random() % 2000; i++) (void)shared->turns.load();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    SealedIndex index(shared->table, kRoot);
    for (const int32_t block : index.sealed()) {
      const shm::KvBlockEntry& entry = shared->table[block];
      ASSERT_TRUE(std::equal(entry.tokens, entry.tokens + kPositions, shared->pool[block]))
          << "round " << round << " block " << block;
      sealed++;
    }
  }
  EXPECT_GT(sealed, 60);
  munmap(memory, sizeof(Shared));
}

}  // namespace
}  // namespace worker
