#include "worker/placement_report.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

#include "kernels/ops.h"
#include "model/model.h"
#include "shm/region.h"

namespace worker {
namespace {

constexpr char kModel[] = NUMOE_SOURCE_DIR "/models/fairy-tales-moe-21m-Q4_K_M.gguf";

/// What must be there.
template <class Value>
Value take(base::Result<Value> result) {
  CHECK(result.ok(), "no value for the test");
  return std::move(*result);
}

/// The slice of rank 1 of two, which has the router, in memory of this process.
class LoadedRank {
 public:
  LoadedRank()
      : model_(take(model::load_model(kModel))),
        plan_(take(plan::split(model_.spec, {.rank_count = 2, .shares = {}}))),
        map_(engine::map_weights(model_, plan_.ranks[1], *take(kernels::find_ops("auto")))),
        arena_(take(shm::Region::anonymous(4096 + map_.bytes))),
        kv_(take(shm::Region::anonymous(300'000))) {
    std::memset(arena_.data(), 1, arena_.bytes());
    std::memset(kv_.data(), 1, kv_.bytes());
  }

  const engine::WeightMap& map() const { return map_; }
  uint64_t kv_bytes() const { return kv_.bytes(); }
  proto::PlacementReply report(int os_node, shm::SurveyOptions survey = {}) const {
    return placement_report({.os_node = os_node,
                             .map = &map_,
                             .arena = {arena_.data(), arena_.bytes()},
                             .weights = arena_.data() + 4096,
                             .kv_cache = {kv_.data(), kv_.bytes()},
                             .survey = survey});
  }

 private:
  model::Model model_;
  plan::Plan plan_;
  engine::WeightMap map_;
  shm::Region arena_, kv_;
};

uint64_t present_in(const proto::PlacementClass& own) {
  return std::accumulate(own.bytes_on_node.begin(), own.bytes_on_node.end(), uint64_t{0});
}

TEST(PlacementReport, CountsEveryByteOfTheWeightsInOneClass) {
  const LoadedRank rank;
  const proto::PlacementReply reply = rank.report(0);
  if (reply.source != "move_pages") GTEST_SKIP() << "move_pages is denied here";
  uint64_t weights = 0;
  std::map<std::string, uint64_t> classes;
  for (const proto::PlacementClass& own : reply.classes) {
    EXPECT_EQ(own.bytes_asked, own.bytes) << own.name;
    EXPECT_EQ(present_in(own), own.bytes) << own.name << ": all of it was written";
    EXPECT_TRUE(classes.emplace(own.name, own.bytes).second) << own.name << " comes twice";
    if (own.name != "KV cache") weights += own.bytes;
  }
  uint64_t in_slices = 0;  // without the gaps that align them
  for (const engine::WeightSlice& slice : rank.map().slices) in_slices += slice.bytes();
  EXPECT_EQ(weights, in_slices);
  EXPECT_EQ(classes["KV cache"], rank.kv_bytes());
  for (const char* const name : {"experts", "attention", "router", "norms", "embedding", "output"})
    EXPECT_GT(classes[name], 0u) << name;
  EXPECT_EQ(classes.count("feed-forward"), 0u) << "this model has only experts";
  EXPECT_GT(classes["experts"], classes["attention"]);
  EXPECT_EQ(reply.page_bytes, 4096u);
  EXPECT_EQ(reply.os_node, 0);
}

TEST(PlacementReport, PutsEachTensorIntoTheClassOfItsRole) {
  const LoadedRank rank;
  const std::vector<std::string> classes = slice_classes(rank.map());
  const std::map<std::string, std::string> roles = {
      {"ffn_gate_exps", "experts"}, {"ffn_down_exps", "experts"}, {"ffn_gate_inp", "router"},
      {"attn_q", "attention"},      {"attn_output", "attention"}, {"attn_norm", "norms"},
      {"ffn_norm", "norms"},        {"output_norm", "norms"}};
  size_t known = 0;
  for (size_t i = 0; i < classes.size(); i++) {
    std::string name = rank.map().slices[i].tensor->name;  // "blk.3.attn_q.weight"
    name = name.substr(0, name.rfind('.'));
    name = name.substr(name.rfind('.') + 1);
    const auto role = roles.find(name);
    if (role == roles.end()) continue;
    EXPECT_EQ(classes[i], role->second) << name;
    known++;
  }
  EXPECT_GE(known, roles.size());
}

TEST(PlacementReport, SaysWhenItIsASample) {
  const LoadedRank rank;
  const proto::PlacementReply reply = rank.report(-1, {.bytes_asked_max = 1 << 20});
  if (reply.source != "move_pages") GTEST_SKIP() << "move_pages is denied here";
  uint64_t bytes = 0, asked = 0;
  for (const proto::PlacementClass& own : reply.classes) {
    EXPECT_GT(own.bytes_asked, 0u) << own.name << ": no class is left out";
    bytes += own.bytes;
    asked += own.bytes_asked;
  }
  EXPECT_LT(asked, bytes);
  EXPECT_EQ(reply.os_node, -1);
}

}  // namespace
}  // namespace worker
