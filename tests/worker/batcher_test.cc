#include "worker/batcher.h"

#include <gtest/gtest.h>

#include <set>

#include "base/limits.h"

namespace worker {
namespace {

NewSequence sequence(uint64_t id, size_t length, int64_t positions_max) {
  return {.id = id,
          .tokens = std::vector<int32_t>(length, 1),
          .positions_max = positions_max,
          .logits_from = static_cast<int64_t>(length) - 1};
}

engine::RunnerShape shape(int columns_max, int32_t blocks, int logit_columns_max = 512) {
  return {.vocabulary = 10,
          .context = 4096,
          .kv_block_count = blocks,
          .columns_max = columns_max,
          .logit_columns_max = logit_columns_max};
}

TEST(KvBlocks, PromisesAreKeptApart) {
  KvBlocks blocks(4);
  EXPECT_TRUE(blocks.reserve(3));
  EXPECT_FALSE(blocks.reserve(2));
  EXPECT_TRUE(blocks.reserve(1));
  EXPECT_EQ(blocks.used(), 0);
  std::set<int32_t> ids;
  for (int i = 0; i < 4; i++) ids.insert(blocks.take());
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(blocks.peak(), 4);
  blocks.release(std::vector<int32_t>{2, 3}, 0);
  EXPECT_EQ(blocks.used(), 2);
  EXPECT_TRUE(blocks.reserve(2));
  EXPECT_FALSE(blocks.can_reserve(1));
  blocks.release({}, 2);
  EXPECT_TRUE(blocks.can_reserve(2));
}

TEST(KvBlocks, ABlockHoldsItsPositions) {
  EXPECT_EQ(blocks_for(0), 0);
  EXPECT_EQ(blocks_for(1), 1);
  EXPECT_EQ(blocks_for(base::kKvBlockPositions), 1);
  EXPECT_EQ(blocks_for(base::kKvBlockPositions + 1), 2);
}

TEST(Batcher, DecodeColumnsComeFirst) {
  Batcher batcher(shape(8, 100));
  batcher.add(sequence(1, 1, 50));
  batcher.add(sequence(2, 1, 50));
  ASSERT_NE(batcher.plan(), nullptr);
  batcher.complete();
  batcher.append(1, 5);
  batcher.append(2, 6);
  batcher.add(sequence(3, 20, 50));
  const engine::Step* step = batcher.plan();
  ASSERT_EQ(batcher.parts().size(), 3u);
  EXPECT_EQ(step->columns.size(), 8u);
  EXPECT_EQ(step->columns[0].token, 5);
  EXPECT_EQ(step->columns[0].position, 1);
  EXPECT_EQ(step->columns[1].token, 6);
  EXPECT_EQ(batcher.parts()[2].id, 3u);
  EXPECT_EQ(batcher.parts()[2].column_count, 6);
  EXPECT_EQ(batcher.parts()[2].logits_count, 0) << "the prompt goes on";
}

TEST(Batcher, AllDecodeGetsItsTurnWhenColumnsLack) {
  Batcher batcher(shape(2, 100));
  for (uint64_t id = 1; id <= 5; id++) batcher.add(sequence(id, 1, 60));
  std::vector<int> served(6);
  for (int step = 0; step < 50; step++) {
    ASSERT_NE(batcher.plan(), nullptr);
    ASSERT_EQ(batcher.parts().size(), 2u);
    std::vector<uint64_t> ids;
    for (const Part& part : batcher.parts()) ids.push_back(part.id);
    EXPECT_NE(ids[0], ids[1]);
    batcher.complete();
    for (const uint64_t id : ids) {
      served[id]++;
      batcher.append(id, 2);
    }
  }
  for (uint64_t id = 1; id <= 5; id++) EXPECT_EQ(served[id], 20) << id;
}

TEST(Batcher, APromptGoesOnWhileAllColumnsCouldDecode) {
  for (const int columns_max : {1, 2, 4}) {
    for (const int logit_columns_max : {1, 512}) {
      Batcher batcher(shape(columns_max, 100, logit_columns_max));
      for (uint64_t id = 1; id <= 5; id++) batcher.add(sequence(id, 1, 100));
      batcher.add(sequence(9, 10, 20));
      std::vector<int> columns(10), steps(10);
      for (int step = 0; step < 40; step++) {
        ASSERT_NE(batcher.plan(), nullptr);
        const std::vector<Part> parts(batcher.parts().begin(), batcher.parts().end());
        batcher.complete();
        for (const Part& part : parts) {
          columns[part.id] += part.column_count;
          steps[part.id]++;
          if (part.logits_count > 0 && part.id != 9) batcher.append(part.id, 2);
        }
      }
      EXPECT_EQ(columns[9], 10) << columns_max << " columns, " << logit_columns_max;
      for (uint64_t id = 1; id <= 5; id++)
        EXPECT_GE(steps[id], 2) << "decoding goes on too: " << id << ", " << columns_max;
    }
  }
}

TEST(Batcher, LogitsAreWantedFromAPositionOn) {
  Batcher batcher(shape(4, 100));
  NewSequence wanting = sequence(1, 10, 10);
  wanting.logits_from = 6;
  batcher.add(wanting);
  std::vector<bool> wanted;
  std::vector<int> counts;
  while (const engine::Step* step = batcher.plan()) {
    for (const engine::Column& column : step->columns) wanted.push_back(column.wants_logits);
    counts.push_back(batcher.parts()[0].logits_count);
    batcher.complete();
  }
  EXPECT_EQ(wanted, (std::vector<bool>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(counts, (std::vector<int>{0, 2, 2}));
}

TEST(Batcher, LogitsRowsOfAStepAreCountedOverItsParts) {
  Batcher batcher(shape(16, 100));
  batcher.add(sequence(1, 3, 10));
  batcher.add(sequence(2, 4, 10));
  ASSERT_NE(batcher.plan(), nullptr);
  EXPECT_EQ(batcher.parts()[0].first_logits, 0);
  EXPECT_EQ(batcher.parts()[1].first_logits, 1);
  EXPECT_EQ(batcher.parts()[1].first_column, 3);
}

TEST(Batcher, AStepHasAtMostSoManyColumnsWithLogits) {
  Batcher batcher(shape(16, 100, 3));
  NewSequence scored = sequence(1, 10, 10);
  scored.logits_from = 4;
  batcher.add(scored);
  for (uint64_t id = 2; id <= 4; id++) batcher.add(sequence(id, 5, 10));
  std::vector<int> columns, logits;
  std::vector<int> decoded(5);
  for (int step = 0; step < 12; step++) {
    const engine::Step* planned = batcher.plan();
    if (planned == nullptr) break;
    int wanted = 0;
    for (const engine::Column& column : planned->columns) wanted += column.wants_logits ? 1 : 0;
    columns.push_back(static_cast<int>(planned->columns.size()));
    logits.push_back(wanted);
    const std::vector<Part> parts(batcher.parts().begin(), batcher.parts().end());
    batcher.complete();
    for (const Part& part : parts) {
      if (part.id == 1 || part.logits_count == 0) continue;
      if (++decoded[part.id] == 5)
        batcher.remove(part.id);
      else
        batcher.append(part.id, 1);
    }
  }
  // Seven of the ten with three rows, then four of each prompt that want none, and so on.
  EXPECT_EQ(columns[0], 7 + 4 + 4 + 1);
  EXPECT_EQ(logits[0], 3);
  for (const int wanted : logits) EXPECT_LE(wanted, 3);
  EXPECT_EQ(decoded, (std::vector<int>{0, 0, 5, 5, 5}));
  EXPECT_EQ(batcher.plan(), nullptr);
}

TEST(Batcher, BlocksAreDistinctAndTakenAsNeeded) {
  Batcher batcher(shape(512, 10));
  batcher.add(sequence(1, 65, 300));
  batcher.add(sequence(2, 64, 64));
  batcher.add(sequence(3, 1, 300));  // 5 + 1 reserved, 5 needed: waits
  const engine::Step* step = batcher.plan();
  EXPECT_EQ(batcher.running(), 2);
  EXPECT_EQ(batcher.waiting(), 1);
  ASSERT_EQ(step->block_tables.size(), 2u);
  EXPECT_EQ(step->block_tables[0].size(), 2u);
  EXPECT_EQ(step->block_tables[1].size(), 1u);
  std::set<int32_t> ids(step->block_tables[0].begin(), step->block_tables[0].end());
  ids.insert(step->block_tables[1][0]);
  EXPECT_EQ(ids.size(), 3u);
  batcher.complete();
  batcher.remove(2);
  batcher.remove(77);
  EXPECT_EQ(batcher.blocks().used(), 2);
  EXPECT_TRUE(batcher.has_work());
  ASSERT_NE(batcher.plan(), nullptr);
  EXPECT_EQ(batcher.parts()[0].id, 3u);
}

TEST(Batcher, ARemovedSequenceGivesItsReservationBack) {
  Batcher batcher(shape(512, 10));
  batcher.add(sequence(1, 65, 640));  // all blocks reserved, two of them taken
  batcher.add(sequence(2, 65, 640));
  ASSERT_NE(batcher.plan(), nullptr);
  batcher.complete();
  EXPECT_EQ(batcher.running(), 1);
  batcher.remove(1);
  ASSERT_NE(batcher.plan(), nullptr);
  EXPECT_EQ(batcher.parts()[0].id, 2u);
}

TEST(Batcher, NeverMoreSequencesThanAStepHolds) {
  Batcher batcher(shape(512, 512));
  for (uint64_t id = 1; id <= 100; id++) batcher.add(sequence(id, 2, 2));
  ASSERT_NE(batcher.plan(), nullptr);
  EXPECT_EQ(batcher.parts().size(), size_t{base::kStepSequencesMax});
}

TEST(Batcher, APausedSequenceGetsNoColumns) {
  Batcher batcher(shape(8, 10));
  batcher.add(sequence(1, 3, 10));
  ASSERT_NE(batcher.plan(), nullptr);
  batcher.complete();
  batcher.append(1, 4);
  batcher.set_paused(1, true);
  EXPECT_FALSE(batcher.has_work());
  EXPECT_EQ(batcher.plan(), nullptr);
  batcher.set_paused(1, false);
  EXPECT_TRUE(batcher.has_work());
  EXPECT_NE(batcher.plan(), nullptr);
}

TEST(Batcher, WhatCanNeverRunIsRefusedWithBothNumbers) {
  Batcher batcher(shape(8, 10));
  EXPECT_TRUE(batcher.check_fits(640).ok());
  const base::Status status = batcher.check_fits(641);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("needs 11 KV blocks"), std::string::npos);
  EXPECT_NE(status.error().message.find("has 10"), std::string::npos);
}

}  // namespace
}  // namespace worker
