// How a model is spread: what the options fix stays, the rest is the planner's.
#include "cli/layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/cat.h"
#include "cli/place.h"

namespace cli {
namespace {

const char* const kTwoSockets = "package:2 [numa(memory=64GB)] core:8 pu:1";

class LayoutTest : public testing::Test {
 protected:
  void SetUp() override {
    auto model =
        model::load_model(base::cat(NUMOE_SOURCE_DIR, "/models/fairy-tales-moe-21m-Q4_K_M.gguf"));
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_.emplace(std::move(*model));
    options_.command = Command::kServe;
  }
  base::Result<Layout> chosen(const std::string& source) {
    ASSIGN_OR_RETURN(const Machine machine, read_machine(source));
    ASSIGN_OR_RETURN(const shm::Placement whole,
                     place_ranks(machine, {.nodes = static_cast<int>(options_.nodes)}));
    return choose_layout({.options = options_,
                          .model = *model_,
                          .topology = machine.whole,
                          .whole = whole,
                          .expert_use = use_});
  }
  Layout layout(const std::string& source) {
    auto layout = chosen(source);
    EXPECT_TRUE(layout.ok()) << layout.error().message;
    return layout.ok() ? *layout : Layout{};
  }
  /// OS nodes of the ranks of each group.
  static std::vector<std::vector<int>> nodes(const Layout& layout) {
    std::vector<std::vector<int>> all;
    for (const shm::Placement& group : layout.groups) {
      all.emplace_back();
      for (const shm::RankPlacement& rank : group.ranks) all.back().push_back(rank.os_node);
    }
    return all;
  }
  static bool says(const Layout& layout, const char* part) {
    return layout.text.find(part) != std::string::npos;
  }

  Options options_;
  std::optional<model::Model> model_;
  std::vector<std::vector<double>> use_;
};

using Nodes = std::vector<std::vector<int>>;

TEST_F(LayoutTest, OneNodeIsRowsOverOneRank) {
  const Layout one = layout("package:1 [numa(memory=64GB)] core:8 pu:1");
  EXPECT_EQ(one.strategy, plan::Strategy::kRows);
  EXPECT_EQ(nodes(one), (Nodes{{0}}));
  EXPECT_TRUE(says(one, "plan: one node\n")) << one.text;
  EXPECT_TRUE(says(one, "assumed")) << one.text;
}

TEST_F(LayoutTest, TheObjectiveDecides) {
  const Layout latency = layout(kTwoSockets);
  EXPECT_EQ(latency.groups.size(), 1u) << latency.text;
  EXPECT_TRUE(says(latency, "; chosen because ")) << latency.text;
  options_.objective = "throughput";
  options_.parallel = 16;
  const Layout throughput = layout(kTwoSockets);
  EXPECT_EQ(nodes(throughput), (Nodes{{0}, {1}})) << throughput.text;
  EXPECT_TRUE(says(throughput, "16 requests together")) << throughput.text;
}

TEST_F(LayoutTest, WhatIsSaidIsDone) {
  options_.strategy = "rows";
  EXPECT_EQ(nodes(layout(kTwoSockets)), (Nodes{{0, 1}}));
  EXPECT_TRUE(says(layout(kTwoSockets), "plan: rows over 2\n"));
  options_.strategy = "experts";
  EXPECT_EQ(layout(kTwoSockets).strategy, plan::Strategy::kExperts);
  options_.strategy = "layers";
  EXPECT_EQ(layout(kTwoSockets).strategy, plan::Strategy::kLayers);
  EXPECT_EQ(layout(kTwoSockets).stages, 0) << "one a rank";
  options_.strategy = "replicas";
  EXPECT_EQ(nodes(layout(kTwoSockets)), (Nodes{{0}, {1}}));
  EXPECT_EQ(layout(kTwoSockets).strategy, plan::Strategy::kRows) << "inside each";
  options_.strategy = "auto";
  options_.nodes = 2;
  EXPECT_EQ(nodes(layout(kTwoSockets))[0].size() * layout(kTwoSockets).groups.size(), 2u)
      << "both nodes, split or not";
}

TEST_F(LayoutTest, ReplicasMayBeSeveralNodesOrPartsOfOne) {
  options_.replicas = 2;
  options_.strategy = "rows";
  EXPECT_EQ(nodes(layout("package:4 [numa(memory=64GB)] core:4 pu:1")), (Nodes{{0, 1}, {2, 3}}));
  options_.nodes = 1;
  options_.strategy = "auto";
  EXPECT_EQ(nodes(layout(kTwoSockets)), (Nodes{{0}, {0}}));
  options_.nodes = 3;
  EXPECT_FALSE(chosen("package:4 [numa(memory=64GB)] core:4 pu:1").ok());
}

TEST_F(LayoutTest, SimulatedNodesAreRowsAsEver) {
  options_.nodes = 4;
  const Layout simulated = layout(kTwoSockets);
  EXPECT_EQ(nodes(simulated), (Nodes{{-1, -1, -1, -1}}));
  EXPECT_EQ(simulated.strategy, plan::Strategy::kRows);
}

TEST_F(LayoutTest, CountedUseOfExpertsIsPlannedWith) {
  for (const model::Block& block : model_->spec.blocks) {
    use_.emplace_back(static_cast<size_t>(block.experts->count), 0.0);
    use_.back()[3] = use_.back()[5] = 70;
  }
  options_.strategy = "experts";
  const Layout balanced = layout(kTwoSockets);
  EXPECT_TRUE(says(balanced,
                   "experts are dealt out by their counted use: the busiest rank of each "
                   "layer has 0.0 % more"))
      << balanced.text;
  // One expert that always is chosen and one of all others: nothing balances that.
  for (std::vector<double>& layer : use_) std::ranges::fill(layer, 2.0), layer[3] = 60;
  const Layout uneven = layout(kTwoSockets);
  EXPECT_FALSE(says(uneven, "has 0.0 % more")) << uneven.text;
  EXPECT_TRUE(says(uneven, "by their counted use")) << uneven.text;
  // Also where the planner is free, and where no rank has whole experts.
  options_.strategy = "auto";
  EXPECT_TRUE(says(layout(kTwoSockets), "the counts of --expert-use are in this prediction"))
      << layout(kTwoSockets).text;
  options_.objective = "throughput";
  options_.parallel = 16;
  const std::string hot = layout(kTwoSockets).text;
  use_.clear();
  EXPECT_NE(layout(kTwoSockets).text, hot);
  use_.resize(1);
  const auto foreign = chosen(kTwoSockets);
  ASSERT_FALSE(foreign.ok());
  EXPECT_NE(foreign.error().message.find("are not of this model"), std::string::npos);
}

TEST_F(LayoutTest, ARunHasOneGroup) {
  options_.command = Command::kRun;
  options_.objective = "throughput";
  EXPECT_EQ(layout(kTwoSockets).groups.size(), 1u);
}

}  // namespace
}  // namespace cli
