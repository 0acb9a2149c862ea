// How attention is dealt out: every query meets every part of its positions once, whatever there is
// to do and whoever does it.
#include "engine/attend_items.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/parts_done.h"

namespace engine {
namespace {

void expect_complete(const AttendWork& work, const AttendItems& items) {
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, int> met;
  std::map<int64_t, int64_t> parts_of;
  int64_t empty = 0;
  for (int64_t i = 0; i < items.count(); i++) {
    const AttendItems::Item item = items.at(i);
    ASSERT_LE(item.heads.size() * item.columns.size(), kQueriesTogether);
    ASSERT_GE(item.heads.size(), 0);
    ASSERT_FALSE(item.columns.empty());
    ASSERT_LT(item.whole, items.wholes());
    parts_of[item.whole]++;
    for (int64_t c = item.columns.begin; c < item.columns.end; c++)
      for (int64_t h = item.heads.begin; h < item.heads.end; h++)
        met[{item.kv_head, h, c, item.part}]++;
    // Heads of that KV head's group only.
    for (int64_t h = item.heads.begin; h < item.heads.end; h++)
      ASSERT_EQ((work.heads.begin + h) / work.group, work.kv_heads.begin + item.kv_head);
    empty += item.heads.empty() ? 1 : 0;
  }
  ASSERT_EQ(static_cast<int64_t>(met.size()), work.heads.size() * work.columns * items.parts);
  for (const auto& [what, times] : met) ASSERT_EQ(times, 1);
  for (const auto& [whole, parts] : parts_of) ASSERT_EQ(parts, items.parts);
  // Only a group that another rank has a part of can be short of heads.
  ASSERT_LE(empty, 2 * items.head_tiles() * items.column_tiles() * items.parts);
  if (items.parts == 1) return;
  // What is shared has room, and a counter each.
  ASSERT_LE(work.columns * work.heads.size() * work.segments, work.slots);
  ASSERT_LE(items.parts, work.segments);
  ASSERT_LE(items.wholes(), divided_max(work.threads));
  ASSERT_EQ(items.columns_together, 1);
}

TEST(AttendItems, CoverEveryQueryOnce) {
  std::mt19937_64 random(3);
  const auto upto = [&](int64_t n) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int divided = 0;
  for (int i = 0; i < 3000; i++) {
    const int64_t group = random() % 2 == 0 ? upto(3) : upto(130);
    const int64_t first = upto(3 * group) - 1, count = upto(5 * group);
    const AttendWork work{.columns = random() % 2 == 0 ? upto(4) : upto(70),
                          .heads = {first, first + count},
                          .kv_heads = {first / group, (first + count - 1) / group + 1},
                          .group = group,
                          .segments = upto(40),
                          .threads = static_cast<int>(upto(random() % 2 == 0 ? 3 : 96)),
                          .has_neighbours = random() % 2 == 0,
                          .whole_groups = random() % 4 == 0,
                          .slots = static_cast<int64_t>(random() % 40000)};
    SCOPED_TRACE(i);
    if (work.whole_groups && work.group > kQueriesTogether) continue;
    const AttendItems items = share_attention(work);
    if (work.whole_groups) {
      ASSERT_EQ(items.heads_together, items.heads_max);
    }
    expect_complete(work, items);
    divided += items.parts > 1 ? 1 : 0;
  }
  EXPECT_GT(divided, 100);
}

TEST(AttendItems, ARankWithoutHeadsHasNone) {
  for (const int threads : {1, 8}) {
    EXPECT_EQ(share_attention({.columns = 3, .group = 4, .threads = threads}).count(), 0);
  }
}

TEST(AttendItems, QueriesStayTogetherWhereThereAreEnough) {
  const AttendItems prompt = share_attention(
      {.columns = 512, .heads = {0, 32}, .kv_heads = {0, 4}, .group = 8, .threads = 2});
  EXPECT_EQ(prompt.heads_together, 8);
  EXPECT_EQ(prompt.columns_together, 4);
  EXPECT_EQ(prompt.parts, 1);
}

TEST(AttendItems, LongContextsAreSharedBeforeGroupsAreSeparated) {
  const AttendWork work{.columns = 1,
                        .heads = {32, 64},
                        .kv_heads = {2, 4},
                        .group = 16,
                        .segments = 64,
                        .threads = 32,
                        .has_neighbours = false,
                        .slots = 1 << 20};
  const AttendItems items = share_attention(work);
  EXPECT_EQ(items.heads_together, 16);
  EXPECT_EQ(items.parts, 64);
  AttendWork near = work;
  near.segments = 1;
  EXPECT_EQ(share_attention(near).heads_together, 1);
  AttendWork cramped = work;
  cramped.slots = 2 * 16 * 64 - 1;
  EXPECT_EQ(share_attention(cramped).parts, 1);
}

// A rank that has some heads of a large group: its own ones are dealt out, nobody else's.
TEST(AttendItems, OfACutGroupOwnHeadsCount) {
  const AttendItems items = share_attention({.columns = 512,
                                             .heads = {96, 112},
                                             .kv_heads = {0, 1},
                                             .group = 128,
                                             .segments = 4,
                                             .threads = 8,
                                             .slots = 0});
  EXPECT_EQ(items.heads_together, 16);
  EXPECT_EQ(items.head_tiles(), 1);
  EXPECT_EQ(items.columns_together, 2);
  EXPECT_EQ(items.at(0).heads, (plan::Range{0, 16}));
}

TEST(PartsDone, OneIsLastAndSeesTheOthers) {
  constexpr int kThreads = 4, kRounds = 2000;
  PartsDone done(2);
  std::vector<int> written(kThreads * 2);
  std::atomic<int> last{0}, wrong{0}, arrived{0};
  const auto run = [&](int thread) {
    for (int round = 1; round <= kRounds; round++) {
      for (size_t thing = 0; thing < 2; thing++) {
        const size_t first = thing * kThreads;
        written[first + static_cast<size_t>(thread)] = round;
        if (!done.is_last(thing, static_cast<uint64_t>(round), kThreads)) continue;
        last++;
        for (size_t i = 0; i < kThreads; i++) wrong += written[first + i] == round ? 0 : 1;
      }
      arrived++;
      while (arrived < kThreads * round) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last, 2 * kRounds);
  EXPECT_EQ(wrong, 0);
}

TEST(PartsDone, ADispatchThatWasGivenUpLeavesNothing) {
  PartsDone done(1);
  EXPECT_FALSE(done.is_last(0, 7, 3));
  EXPECT_FALSE(done.is_last(0, 9, 2));
  EXPECT_TRUE(done.is_last(0, 9, 2));
}

TEST(PartsDone, SeveralAtOnceCountAsSoMany) {
  PartsDone done(1);
  EXPECT_FALSE(done.is_last(0, 7, {.done = 700'000, .of = 700'003}));
  EXPECT_FALSE(done.is_last(0, 7, {.done = 2, .of = 700'003}));
  EXPECT_TRUE(done.is_last(0, 7, 700'003));
  EXPECT_TRUE(done.is_last(0, 8, {.done = 5, .of = 5}));
}

}  // namespace
}  // namespace engine
