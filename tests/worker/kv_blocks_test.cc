// The free list of KV blocks: every block is somewhere exactly once, and what free blocks hold is
// overwritten in the promised order.
#include "worker/kv_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "base/limits.h"

namespace worker {
namespace {

TEST(KvBlocks, ReservationsAreKept) {
  KvBlocks blocks(4);
  EXPECT_TRUE(blocks.reserve(3));
  EXPECT_FALSE(blocks.reserve(2));
  EXPECT_TRUE(blocks.reserve(1));
  EXPECT_FALSE(blocks.can_reserve(1));
  EXPECT_EQ(blocks.used(), 0);
  const int32_t one[] = {blocks.take()};
  EXPECT_EQ(blocks.used(), 1);
  blocks.release(one, 2);  // of the first reservation
  EXPECT_TRUE(blocks.can_reserve(3));
  EXPECT_FALSE(blocks.can_reserve(4));
  EXPECT_EQ(blocks.peak(), 1);
}

// Blocks without contents go first; of the others the one that was freed first, and the end of a
// sequence before its beginning.
TEST(KvBlocks, ContentsLiveAsLongAsTheyCan) {
  KvBlocks blocks(6);
  ASSERT_TRUE(blocks.reserve(6));
  std::vector<int32_t> a, b;
  for (int i = 0; i < 3; i++) a.push_back(blocks.take());
  for (int i = 0; i < 3; i++) b.push_back(blocks.take());
  blocks.release(a, 0, 2);  // the third is not full
  blocks.release(b, 0, 3);
  EXPECT_FALSE(blocks.is_kept(a[2]));
  for (const int32_t block : {a[0], a[1], b[0], b[1], b[2]}) EXPECT_TRUE(blocks.is_kept(block));
  ASSERT_TRUE(blocks.reserve(6));
  EXPECT_TRUE(blocks.take_kept(b[0]));
  EXPECT_FALSE(blocks.take_kept(b[0]));
  EXPECT_FALSE(blocks.take_kept(a[2]));
  EXPECT_FALSE(blocks.take_kept(-1));
  EXPECT_FALSE(blocks.take_kept(6));
  const std::vector<int32_t> order = {a[2], a[1], a[0], b[2], b[1]};
  for (const int32_t block : order) EXPECT_EQ(blocks.take(), block);
}

TEST(KvBlocks, WhatAnEarlierLeaderKeptGoesLast) {
  const int32_t kept[] = {1, 3};
  KvBlocks blocks(4, kept);
  ASSERT_TRUE(blocks.reserve(4));
  std::set<int32_t> empty = {blocks.take(), blocks.take()};
  EXPECT_EQ(empty, (std::set<int32_t>{0, 2}));
  EXPECT_EQ(blocks.take(), 1);
  EXPECT_EQ(blocks.take(), 3);
}

// Random sequences beside a plain model: nothing is lost, nothing is given twice.
TEST(KvBlocks, EveryBlockIsSomewhereExactlyOnce) {
  constexpr int32_t kCount = 30;
  struct Sequence {
    std::vector<int32_t> blocks;
    int32_t untaken = 0;
  };
  std::mt19937 random(11);
  const auto below = [&](size_t count) { return random() % count; };
  KvBlocks blocks(kCount);
  std::deque<int32_t> kept;
  std::vector<Sequence> running;
  size_t taken_kept = 0, overwritten = 0;
  for (int round = 0; round < 50'000; round++) {
    int32_t used = 0, promised = 0;
    std::set<int32_t> seen(kept.begin(), kept.end());
    for (const Sequence& sequence : running) {
      used += static_cast<int32_t>(sequence.blocks.size());
      promised += sequence.untaken;
      seen.insert(sequence.blocks.begin(), sequence.blocks.end());
    }
    ASSERT_EQ(blocks.used(), used);
    ASSERT_EQ(seen.size(), kept.size() + static_cast<size_t>(used));
    const size_t what = below(12);
    if (what == 0) {
      const auto wanted = static_cast<int32_t>(below(10));
      const bool fits = kCount - used - promised >= wanted;
      ASSERT_EQ(blocks.can_reserve(wanted), fits);
      ASSERT_EQ(blocks.reserve(wanted), fits);
      if (fits) running.push_back({{}, wanted});
    } else if (what == 1 && !running.empty()) {
      const size_t which = below(running.size());
      Sequence& sequence = running[which];
      const size_t full = below(sequence.blocks.size() + 1);
      blocks.release(sequence.blocks, sequence.untaken, full);
      for (size_t i = full; i > 0; i--) kept.push_back(sequence.blocks[i - 1]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (!running.empty()) {
      Sequence& sequence = running[below(running.size())];
      if (sequence.untaken == 0) continue;
      sequence.untaken--;
      if (what == 2 && !kept.empty()) {
        const size_t which = below(kept.size());
        ASSERT_TRUE(blocks.take_kept(kept[which]));
        sequence.blocks.push_back(kept[which]);
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(which));
        taken_kept++;
        continue;
      }
      const int32_t block = blocks.take();
      if (used + static_cast<int32_t>(kept.size()) == kCount) {
        ASSERT_EQ(block, kept.front());
        kept.pop_front();
        overwritten++;
      } else {
        ASSERT_EQ(seen.count(block), 0u);
      }
      sequence.blocks.push_back(block);
    }
  }
  for (const Sequence& sequence : running) blocks.release(sequence.blocks, sequence.untaken, 0);
  EXPECT_EQ(blocks.used(), 0);
  EXPECT_TRUE(blocks.can_reserve(kCount));
  EXPECT_GT(taken_kept, 1000u);
  EXPECT_GT(overwritten, 1000u);
}

TEST(KvBlocks, BlocksForPositions) {
  EXPECT_EQ(blocks_for(0), 0);
  EXPECT_EQ(blocks_for(1), 1);
  EXPECT_EQ(blocks_for(base::kKvBlockPositions), 1);
  EXPECT_EQ(blocks_for(base::kKvBlockPositions + 1), 2);
}

}  // namespace
}  // namespace worker
