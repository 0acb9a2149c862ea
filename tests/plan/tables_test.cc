// Plans of machines that people ask about: whole texts of three, sanity of the others.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "plan/report.h"
#include "tests/plan/machines.h"

namespace plan {
namespace {

std::string text_of(const model::Model& model, const Machine& machine, const Request& request) {
  const auto all = candidates(model, machine, plan_test::packing(), request);
  if (!all.ok()) return all.error().message;
  return report({model, machine, request, *all}, choose(*all, request));
}

/// Compares with tests/plan/tables/NAME.txt; NUMOE_WRITE_TABLES=1 writes it instead.
void expect_table(const std::string& name, const std::string& text) {
  const std::string path = std::string(NUMOE_SOURCE_DIR "/tests/plan/tables/") + name + ".txt";
  if (std::getenv("NUMOE_WRITE_TABLES") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  const std::string expected((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text, expected) << path;
}

TEST(PlanTables, DeepSeekOnTwoGenoaNps1) {
  expect_table("deepseek-r1-2x9654",
               text_of(plan_test::preset("deepseek-r1-671b", "q4_k"),
                       plan_test::machine({.topology = plan_test::kGenoaNps1, .gb_per_s = {360}}),
                       {.parallel = 4}));
}

TEST(PlanTables, QwenOnGraniteRapidsSnc) {
  expect_table("qwen3-235b-2x6980p-snc",
               text_of(plan_test::preset("qwen3-235b-a22b", "q8_0"),
                       plan_test::machine({.topology = plan_test::kGraniteSnc, .gb_per_s = {188}}),
                       {.objective = Objective::kThroughput, .parallel = 8}));
}

TEST(PlanTables, GptOssOnUnevenHosts) {
  auto large = plan_test::host({.topology = plan_test::kOneSocket, .gb_per_s = {300}});
  large.name = "large";
  auto small = plan_test::host({.topology = "package:1 [numa(memory=68719476736)] core:16 pu:1",
                                .gb_per_s = {72},
                                .isa = "avx2"});
  small.name = "small";
  large.link_gbit_per_s = small.link_gbit_per_s = 25;
  large.round_trip_us = small.round_trip_us = 30;
  expect_table("gpt-oss-two-hosts", text_of(plan_test::preset("gpt-oss-120b", "mxfp4"),
                                            machine_of({large, small}), {.parallel = 1}));
}

TEST(PlanTables, SlicesOfEveryStrategy) {
  const model::Model model =
      plan_test::preset("glm-4.5-air", "q4_k", 6);  // the first layer is dense
  const auto slices = [&](const SplitOptions& options) {
    const auto plan = split(model.spec, options);
    return plan.ok() ? describe(*plan, model.spec) : plan.error().message;
  };
  std::vector<std::vector<double>> use;
  for (const model::Block& block : model.spec.blocks) {
    use.emplace_back();
    for (int e = 0; block.experts && e < block.experts->count; e++)
      use.back().push_back(1 + 37 * e % 64);
  }
  expect_table("glm-4.5-air-slices",
               slices({.rank_count = 3, .shares = {2, 1, 1}}) +
                   slices({.strategy = Strategy::kExperts, .rank_count = 2}) +
                   slices({.strategy = Strategy::kExperts, .rank_count = 3, .expert_use = use}) +
                   slices({.strategy = Strategy::kLayers, .rank_count = 4, .stages = 2}));
}

TEST(PlanTables, EveryMachineGetsAPlan) {
  const model::Model model = plan_test::preset("qwen3-30b-a3b", "q4_k");
  const struct {
    const char* topology;
    size_t nodes;
    int threads;  // of the second node, or of the only one
  } machines[] = {
      {plan_test::kGenoaNps1, 2, 96},
      {plan_test::kGenoaNps4, 8, 24},
      {plan_test::kGraniteSnc, 6, 43},
      {plan_test::kGranite, 2, 128},
      {plan_test::kEightSockets, 8, 18},
      {plan_test::kOneSocket, 1, 63},
      // Performance and efficient cores: only the former compute.
      {NUMOE_SOURCE_DIR "/tests/shm/machines/hybrid.xml", 2, 2},
      // Memory without cores gets no rank.
      {"[numa(memory=68719476736)] package:2 [numa(memory=137438953472)] core:8 pu:1", 2, 8}};
  for (const auto& [topology, nodes, threads] : machines) {
    SCOPED_TRACE(topology);
    const Machine machine = plan_test::machine({.topology = topology});
    ASSERT_EQ(machine.nodes.size(), nodes);
    if (threads > 0) {
      EXPECT_EQ(machine.nodes.back().threads, threads);
    }
    const auto all = candidates(model, machine, plan_test::packing(), {});
    ASSERT_TRUE(all.ok());
    const std::string text = text_of(model, machine, {});
    EXPECT_NE(text.find("assumed"), std::string::npos);
    EXPECT_NE(text.find("plan: "), std::string::npos);
  }
}

}  // namespace
}  // namespace plan
