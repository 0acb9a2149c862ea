// What several groups that start together need of the memory.
#include "worker/room.h"

#include <gtest/gtest.h>

#include "base/cat.h"
#include "worker/rank_host.h"

namespace worker {
namespace {

class RoomTest : public testing::Test {
 protected:
  void SetUp() override {
    RankHostOptions options;
    options.model_path = base::cat(NUMOE_SOURCE_DIR, "/models/fairy-tales-moe-21m-Q4_K_M.gguf");
    auto host = RankHost::open(options);
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = std::move(*host);
  }
  static RoomQuestion on_node(int node) {
    return {.os_nodes = {node},
            .weights_directory = testing::TempDir(),
            .group_directory = testing::TempDir(),
            .named_weights = true};
  }
  /// (weights, KV cache) of all together.
  std::pair<uint64_t, uint64_t> sum(const RoomQuestion& question) const {
    std::pair<uint64_t, uint64_t> sum;
    for (const shm::RankNeed& need : all_needs(host_->memory(), question)) {
      sum.first += need.weight_bytes;
      sum.second += need.kv_bytes;
    }
    return sum;
  }

  std::unique_ptr<RankHost> host_;
};

TEST_F(RoomTest, GroupsOnANodeNeedItsWeightsOnceAndOthersTheirOwn) {
  RoomQuestion question = on_node(0);
  const auto one = sum(question);
  ASSERT_GT(one.first, 1'000'000u);
  ASSERT_GT(one.second, 1'000'000u);
  const std::vector<ArenaNeed> same = arena_needs(host_->memory(), on_node(0));
  question.others = same;
  EXPECT_EQ(sum(question), std::pair(one.first, 2 * one.second));
  const std::vector<ArenaNeed> other = arena_needs(host_->memory(), on_node(1));
  EXPECT_NE(same[0].arena, other[0].arena);
  question.others = other;
  EXPECT_EQ(sum(question), std::pair(2 * one.first, 2 * one.second));
  question.others = {same[0], other[0], other[0]};
  EXPECT_EQ(sum(question), std::pair(2 * one.first, 4 * one.second));
}

TEST_F(RoomTest, WeightsWithoutANameAreNotShared) {
  RoomQuestion question = on_node(-1);
  const auto one = sum(question);
  question.named_weights = false;
  question.others = arena_needs(host_->memory(), question);
  EXPECT_EQ(sum(question).first, 2 * one.first);
}

}  // namespace
}  // namespace worker
