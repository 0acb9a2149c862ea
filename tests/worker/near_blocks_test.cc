// Near blocks under a batcher: a pool of memory that says what was written where, read as far as
// the layers reach.
#include "worker/near_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "base/limits.h"
#include "tests/worker/remembered_blocks.h"
#include "worker/batcher.h"

namespace worker {
namespace {

constexpr int64_t kPositions = base::kKvBlockPositions;

engine::RunnerShape shape_with(int64_t context, int32_t blocks, int columns, int32_t near,
                               int64_t span) {
  return {.vocabulary = 100,
          .context = context,
          .kv_block_count = blocks,
          .columns_max = columns,
          .logit_columns_max = columns,
          .kv_near_count = near,
          .near_span = span};
}

/// What a position holds: of all tokens up to it.
std::vector<uint64_t> contents(const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> all;
  uint64_t hash = 1469598103934665603u;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 1099511628211u;
    all.push_back(hash);
  }
  return all;
}

/// Runs steps over a pool of near blocks and looks at all that their columns reach.
class NearMemory {
 public:
  explicit NearMemory(const engine::RunnerShape& shape)
      : shape_(shape), cells_(static_cast<size_t>(shape.kv_near_count * kPositions)) {}

  void run(const engine::Step& step, std::span<const Part> parts) {
    std::set<int32_t> used;
    for (const auto& table : step.near_tables) {
      for (const int32_t id : table) {
        if (id < 0) continue;
        ASSERT_LT(id, shape_.kv_near_count);
        ASSERT_TRUE(used.insert(id).second) << "block " << id << " of two sequences";
      }
    }
    for (size_t s = 0; s < parts.size(); s++) {
      const std::vector<int32_t> tokens(parts[s].tokens.begin(), parts[s].tokens.end());
      const std::vector<uint64_t> right = contents(tokens);
      const auto cell = [&](int64_t p) -> uint64_t& {
        const int32_t id = step.near_tables[s][static_cast<size_t>(p / kPositions)];
        EXPECT_GE(id, 0) << "position " << p << " has no block";
        return cells_[static_cast<size_t>(std::max(id, 0) * kPositions + p % kPositions)];
      };
      for (int c = 0; c < parts[s].column_count; c++) {
        const int64_t position = parts[s].first_position + c;
        cell(position) = right[static_cast<size_t>(position)];
        for (int64_t p = std::max<int64_t>(position - shape_.near_span + 1, 0); p <= position; p++)
          ASSERT_EQ(cell(p), right[static_cast<size_t>(p)]) << position << " reads " << p;
      }
    }
  }

 private:
  const engine::RunnerShape shape_;
  std::vector<uint64_t> cells_;
};

TEST(NearPool, IsMadeWhereItSavesMemory) {
  model::ModelSpec spec;
  spec.blocks.resize(4);
  engine::RunnerShape shape = shape_with(32768, 512, 128, 0, 0);
  plan_near_pool(spec, 1, shape);
  EXPECT_EQ(shape.kv_near_count, 0);  // all layers reach all
  spec.blocks[1].attention.reach = spec.blocks[3].attention.reach = model::Reach::kWindow;
  spec.blocks[1].attention.span = 128;
  spec.blocks[3].attention.span = 100;
  plan_near_pool(spec, 1, shape);
  EXPECT_EQ(shape.near_span, 128);
  EXPECT_GE(shape.kv_near_count, 5);
  EXPECT_LE(shape.kv_near_count, 512 / 4);
  engine::RunnerShape short_one = shape_with(512, 8, 128, 0, 0);
  plan_near_pool(spec, 1, short_one);
  EXPECT_EQ(short_one.kv_near_count, 0);
}

// Sequences come, grow, end and come again with beginnings in common; nothing that a position
// reaches is ever missing or of somebody else.
TEST(NearBlocks, HoldWhatEveryPositionReaches) {
  int64_t found = 0, steps = 0;
  for (uint32_t seed = 0; seed < 60; seed++) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    const auto span = static_cast<int64_t>(1 + below(200));
    const int columns = static_cast<int>(1 + below(90));
    const auto at_once = static_cast<int32_t>((columns + span - 2) / kPositions + 2);
    const engine::RunnerShape shape =
        shape_with(1280, 44, columns, at_once * static_cast<int32_t>(1 + below(3)), span);
    RememberedBlocks sealed;
    NearMemory memory(shape);
    auto batcher = std::make_unique<Batcher>(shape, &sealed);
    std::map<uint64_t, size_t> live;  // tokens it shall have
    uint64_t next_id = 1;
    for (int round = 0; round < 400; round++) {
      if (live.size() < 3 && below(4) == 0) {
        std::vector<int32_t> tokens(1 + below(600));
        const size_t same = below(tokens.size() + 1);  // a beginning that others have too
        for (size_t i = 0; i < tokens.size(); i++)
          tokens[i] = i < same ? static_cast<int32_t>(i % 7) : static_cast<int32_t>(below(100));
        live[next_id] = tokens.size() + below(100);
        const auto most = static_cast<int64_t>(live[next_id]);
        const auto logits_from = static_cast<int64_t>(tokens.size()) - 1;
        batcher->add({.id = next_id++,
                      .tokens = std::move(tokens),
                      .positions_max = most,
                      .logits_from = logits_from});
      }
      if (below(100) == 0) {  // the process dies: its sequences with it, the index stays
        batcher = std::make_unique<Batcher>(shape, &sealed);
        live.clear();
      }
      const engine::Step* step = batcher->plan();
      if (step == nullptr) continue;
      steps++;
      ASSERT_NO_FATAL_FAILURE(memory.run(*step, batcher->parts())) << "seed " << seed;
      const std::vector<Part> parts(batcher->parts().begin(), batcher->parts().end());
      batcher->complete();
      for (const Part& part : parts) {
        batcher->seal(part.id);
        if (part.logits_count == 0) continue;
        const auto end = static_cast<size_t>(part.first_position + part.column_count);
        if (end >= live[part.id] || below(30) == 0) {
          batcher->remove(part.id);
          live.erase(part.id);
        } else if (end == part.tokens.size()) {
          batcher->append(part.id, static_cast<int32_t>(below(100)));
        }
      }
    }
    found += static_cast<int64_t>(batcher->blocks().reused());
  }
  EXPECT_GT(steps, 5000);
  EXPECT_GT(found, 50);
}

TEST(NearBlocks, AreKeptOutOfReachUntilOthersNeedThem) {
  const engine::RunnerShape shape = shape_with(1280, 40, 64, 12, 64);
  RememberedBlocks sealed;
  NearMemory memory(shape);
  Batcher batcher(shape, &sealed);
  const auto run = [&](uint64_t id, int32_t token, size_t count) {
    batcher.add({.id = id,
                 .tokens = std::vector<int32_t>(count, token),
                 .positions_max = static_cast<int64_t>(count),
                 .logits_from = static_cast<int64_t>(count) - 1});
    int64_t computed = 0;
    while (const engine::Step* step = batcher.plan()) {
      memory.run(*step, batcher.parts());
      computed += static_cast<int64_t>(step->columns.size());
      batcher.complete();
      batcher.seal(id);
    }
    batcher.remove(id);
    return computed;
  };
  EXPECT_EQ(run(1, 1, 641), 641);
  EXPECT_EQ(run(2, 1, 641), 1);    // all ten blocks are known, and what the last position reaches
  EXPECT_EQ(run(3, 1, 321), 1);    // the pool of twelve still has what is there in the middle
  EXPECT_EQ(run(4, 2, 832), 832);  // takes thirteen, one after the other: nothing else is left
  EXPECT_EQ(run(5, 1, 641), 641);
}

}  // namespace
}  // namespace worker
