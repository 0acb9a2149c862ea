// Properties of plans over generated machines and shapes, and answers that people would expect.
#include "plan/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/cat.h"
#include "base/limits.h"
#include "plan/cost.h"
#include "tests/plan/machines.h"

namespace plan {
namespace {

constexpr uint64_t kGib = uint64_t{1} << 30;

std::vector<Candidate> plans(const model::Model& model, const Machine& machine,
                             const Request& request = {}) {
  auto all = candidates(model, machine, plan_test::packing(), request);
  EXPECT_TRUE(all.ok()) << all.error().message;
  return all.ok() ? std::move(*all) : std::vector<Candidate>{};
}

const Candidate* find(const std::vector<Candidate>& all, const std::string& name) {
  for (const Candidate& one : all)
    if (one.name() == name) return &one;
  return nullptr;
}

/// A machine of random nodes; what is measured or not does not matter here.
Machine random_machine(std::mt19937_64& random) {
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int nodes = between(1, 8), cores = between(1, 24);
  std::string topology =
      base::cat("package:", nodes, " [numa(memory=", uint64_t(between(16, 512)) * kGib,
                ")] core:", cores, " pu:1");
  plan_test::MachineOf of{.topology = std::move(topology)};
  if (between(0, 1) == 1)
    for (int n = 0; n < nodes; n++) {
      of.gb_per_s.push_back(between(20, 500));
      of.memory_bytes.push_back(static_cast<uint64_t>(between(2, 60)) * kGib);
    }
  return plan_test::machine(of);
}

struct Shaped {
  const char* preset;
  const char* type;
};
constexpr Shaped kShapes[] = {{"olmoe-1b-7b", "q4_k"},  {"qwen3-30b-a3b", "q8_0"},
                              {"mixtral-8x7b", "q4_k"}, {"deepseek-v2-lite", "q8_0"},
                              {"gpt-oss-20b", "mxfp4"}, {"glm-4.5-air", "q4_k"}};

/// Every row of [0, total) on exactly one rank, within 32 rows (or one head) of its share.
void expect_dealt(const std::vector<Range>& ranges, const Candidate& candidate, int64_t total,
                  int64_t tolerance) {
  int64_t next = 0;
  double before = 0;
  for (size_t r = 0; r < ranges.size(); r++) {
    EXPECT_EQ(ranges[r].begin, next);
    next = ranges[r].end;
    before += candidate.ranks[r].share;
    EXPECT_NEAR(static_cast<double>(ranges[r].end), before * static_cast<double>(total),
                static_cast<double>(tolerance))
        << candidate.name() << " rank " << r;
  }
  EXPECT_EQ(next, total);
}

void expect_whole(const model::ModelSpec& spec, const Candidate& candidate) {
  const auto plan = split(spec, split_options(candidate, {}));
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->rank_count(), candidate.ranks_per_replica());
  if (candidate.strategy == Strategy::kLayers) return;  // stages are tested with split()
  const auto ranges = [&](auto of) {
    std::vector<Range> all;
    for (const RankShare& rank : plan->ranks) all.push_back(of(rank));
    return all;
  };
  expect_dealt(ranges([](const RankShare& r) { return r.vocabulary; }), candidate, spec.vocabulary,
               32);
  for (size_t layer = 0; layer < spec.blocks.size(); layer += 7) {
    const model::Block& block = spec.blocks[layer];
    const auto of_layer = [&](Range BlockShare::*what) {
      return ranges([&](const RankShare& r) { return r.blocks[layer].*what; });
    };
    expect_dealt(of_layer(&BlockShare::hidden), candidate, spec.hidden, 32);
    expect_dealt(of_layer(&BlockShare::heads), candidate, block.attention.heads, 1);
    if (block.experts && candidate.strategy == Strategy::kRows)
      expect_dealt(of_layer(&BlockShare::width), candidate, block.experts->width, 32);
    if (block.experts && candidate.strategy == Strategy::kExperts) {
      std::vector<int> owners(static_cast<size_t>(block.experts->count), 0);
      for (const RankShare& rank : plan->ranks)
        for (const int32_t expert : rank.blocks[layer].owned) owners[static_cast<size_t>(expert)]++;
      for (const int owner : owners) EXPECT_EQ(owner, 1);
    }
  }
}

TEST(Planner, DealsEveryRowOnceAndKeepsNodesWithinTheirMemory) {
  std::mt19937_64 random(20);
  int fitting = 0, not_fitting = 0;
  for (int round = 0; round < 24; round++) {
    const Shaped& shaped = kShapes[static_cast<size_t>(round) % std::size(kShapes)];
    SCOPED_TRACE(base::cat("round ", round, " ", shaped.preset));
    const model::Model model = plan_test::preset(shaped.preset, shaped.type);
    const Machine machine = random_machine(random);
    for (const Candidate& one : plans(model, machine, {.parallel = 1 + round % 5})) {
      expect_whole(model.spec, one);
      double shares = 0;
      std::vector<int> used(machine.nodes.size(), 0);
      for (const RankPlan& rank : one.ranks) {
        shares += rank.share;
        used[static_cast<size_t>(rank.node)]++;
        EXPECT_GE(rank.threads, 1);
        EXPECT_LE(rank.decode_threads, rank.threads);
        EXPECT_TRUE(!one.fits() || rank.memory.total() <= rank.node_bytes) << one.name();
      }
      for (const int ranks : used) EXPECT_LE(ranks, 1);
      EXPECT_NEAR(shares, one.replicas, 1e-9);
      EXPECT_GT(one.one.decode, 0);
      EXPECT_GT(one.all.prefill, 0);
      EXPECT_FALSE(one.limit.empty());
      (one.fits() ? fitting : not_fitting)++;
    }
  }
  // Both kinds were seen, so neither branch went untried.
  EXPECT_GT(fitting, 20);
  EXPECT_GT(not_fitting, 10);
}

/// The same candidates of two machines or requests, by name.
template <class Compare>
int compare(const std::vector<Candidate>& some, const std::vector<Candidate>& others,
            Compare compare_two) {
  int compared = 0;
  for (const Candidate& one : some) {
    const Candidate* other = find(others, one.name());
    if (other == nullptr) continue;
    SCOPED_TRACE(one.name());
    compare_two(one, *other);
    compared++;
  }
  return compared;
}

TEST(Planner, IsMonotone) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 12; round++) {
    const Shaped& shaped = kShapes[static_cast<size_t>(round) % std::size(kShapes)];
    SCOPED_TRACE(base::cat("round ", round, " ", shaped.preset));
    const model::Model model = plan_test::preset(shaped.preset, shaped.type, 6);
    const Machine machine = random_machine(random);
    const Request request{.parallel = 4};
    const auto base = plans(model, machine, request);

    Machine wide = machine;  // all nodes read 30 % faster
    for (MachineNode& node : wide.nodes)
      for (ReadPoint& point : node.read) point.gb_per_s *= 1.3;
    Machine late = machine;  // all waits take longer
    late.meeting.barrier_ns *= 3;
    late.meeting.gather_ns *= 3;
    Machine strong = machine;  // all kernels are faster
    for (KernelSpeed& kernel : strong.kernels)
      for (KernelPoint& point : kernel.points) point.gmac_per_s *= 1.5;
    strong.thread.attend *= 2;
    strong.thread.attend_together *= 2;
    const auto slack = [](double value) { return value * 1.000001; };
    EXPECT_GT(compare(base, plans(model, wide, request),
                      [&](const Candidate& a, const Candidate& b) {
                        EXPECT_LE(a.one.decode, slack(b.one.decode));
                        EXPECT_LE(a.all.decode, slack(b.all.decode));
                        EXPECT_LE(a.one.prefill, slack(b.one.prefill));
                      }),
              0);
    compare(base, plans(model, late, request), [&](const Candidate& a, const Candidate& b) {
      EXPECT_GE(slack(a.one.decode), b.one.decode);
      EXPECT_GE(slack(a.one.prefill), b.one.prefill);
    });
    compare(base, plans(model, strong, request), [&](const Candidate& a, const Candidate& b) {
      EXPECT_LE(a.one.decode, slack(b.one.decode));
      EXPECT_LE(a.one.prefill, slack(b.one.prefill));
    });
    // More context and more sequences never take less memory, deeper tokens never less time.
    Request large = request;
    large.context = 16384;
    large.parallel = 8;
    compare(base, plans(model, machine, large), [&](const Candidate& a, const Candidate& b) {
      uint64_t before = 0, after = 0;
      for (const RankPlan& rank : a.ranks) before += rank.memory.total();
      for (const RankPlan& rank : b.ranks) after += rank.memory.total();
      EXPECT_LE(before, after);
    });
    Request deep = large;
    deep.depth = 8192;
    compare(plans(model, machine, large), plans(model, machine, deep),
            [&](const Candidate& a, const Candidate& b) {
              EXPECT_GE(slack(a.one.decode), b.one.decode);
            });
  }
}

TEST(Planner, GivesUnevenNodesUnevenShares) {
  const model::Model model = plan_test::preset("qwen3-30b-a3b", "q8_0");
  const Machine machine = plan_test::machine(
      {.topology = "package:2 [numa(memory=412316860416)] core:16 pu:1", .gb_per_s = {300, 100}});
  const auto all = plans(model, machine, {.strategy = Strategy::kRows, .nodes = 2, .replicas = 1});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NEAR(all[0].ranks[0].share, 0.75, 1e-9);
  // Each reads for as long as the other: shares and bandwidth go together.
  EXPECT_NEAR(all[0].ranks[0].read_seconds / all[0].ranks[1].read_seconds, 1, 0.1);
}

TEST(Planner, MovesSharesAwayFromFullNodes) {
  const model::Model model = plan_test::preset("qwen3-30b-a3b", "q8_0");
  const Machine machine =
      plan_test::machine({.topology = "package:2 [numa(memory=412316860416)] core:16 pu:1",
                          .gb_per_s = {200, 200},
                          .memory_bytes = {10 * kGib, 64 * kGib}});
  const auto all = plans(model, machine, {.strategy = Strategy::kRows, .nodes = 2, .replicas = 1});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].fits()) << all[0].misfit;
  EXPECT_LT(all[0].ranks[0].share, 0.4);
  EXPECT_LE(all[0].ranks[0].memory.total(), 10 * kGib);
}

// A model whose layers take no longer than a wait between sockets stays on one.
TEST(Planner, AnswersASmallModelWithOneNode) {
  Machine machine = plan_test::machine({.topology = plan_test::kGenoaNps1, .gb_per_s = {360}});
  const model::Model small = plan_test::preset("olmoe-1b-7b", "q4_k", 2);
  machine.meeting.gather_ns = 60'000;
  const auto latency = plans(small, machine);
  EXPECT_EQ(latency[0].name(), "one node");
  EXPECT_EQ(choose(latency, {}).index, 0u);
  const Request many{.objective = Objective::kThroughput, .parallel = 8};
  EXPECT_EQ(plans(small, machine, many)[0].name(), "2 replicas of one node");
  const model::Model large = plan_test::preset("qwen3-235b-a22b", "q8_0");
  EXPECT_EQ(plans(large, machine)[0].name(), "rows over 2");
}

TEST(Planner, SaysWhatDoesNotFitAndWhy) {
  const model::Model model = plan_test::preset("deepseek-r1-671b", "q8_0");
  const auto all = plans(model, plan_test::machine({.topology = plan_test::kOneSocket}));
  const Choice choice = choose(all, {});
  EXPECT_FALSE(choice.index.has_value());
  EXPECT_NE(choice.why.find("no split fits: with one node, node 0 has 361 GiB, its rank needs 66"),
            std::string::npos)
      << choice.why;
}

TEST(Planner, RefusesWishesThatNothingAnswers) {
  const model::Model model = plan_test::preset("olmoe-1b-7b", "q4_k", 2);
  const Machine machine = plan_test::machine({.topology = plan_test::kOneSocket});
  const auto packing = plan_test::packing();
  EXPECT_FALSE(candidates(model, machine, packing, {.nodes = 2}).ok());
  EXPECT_FALSE(candidates(model, machine, packing, {.replicas = 3}).ok());
}

TEST(Planner, PutsLayersAcrossSlowLinks) {
  auto host = plan_test::host({.topology = plan_test::kOneSocket, .gb_per_s = {300}});
  host.link_gbit_per_s = 1;
  host.round_trip_us = 250;
  const Machine machine = machine_of({host, host});
  const model::Model model = plan_test::preset("deepseek-r1-671b", "q8_0");
  const auto all = plans(model, machine, {.parallel = 1});
  EXPECT_EQ(all[0].name(), "layers over 2");
  const Candidate* rows = find(all, "rows over 2");
  ASSERT_NE(rows, nullptr);
  EXPECT_GT(rows->decode_time.waits + rows->decode_time.handed, all[0].decode_time.waits);
}

TEST(Planner, CountsWaitsAsTheEngineDoes) {
  const Machine machine = plan_test::machine({.topology = plan_test::kGenoaNps1});
  const auto waits = [&](const char* preset, int64_t layers) {
    const auto all = plans(plan_test::preset(preset, "q8_0", layers), machine,
                           {.strategy = Strategy::kRows, .nodes = 2, .replicas = 1});
    return all.at(0).waits;
  };
  // engine/README.md: six a layer, nine with a latent, one less without a router; two outside.
  EXPECT_EQ(waits("qwen3-30b-a3b", 4), 4 * 6 + 2);
  EXPECT_EQ(waits("olmoe-1b-7b", 3), 3 * 6 + 2);
  EXPECT_EQ(waits("deepseek-v2-lite", 3), 8 + 2 * 9 + 2);
}

TEST(Cost, ExpertsAreCountedTogether) {
  EXPECT_NEAR(distinct_experts(128, 8, 1), 8, 1e-9);
  EXPECT_LT(distinct_experts(128, 8, 4), 32);
  EXPECT_NEAR(distinct_experts(128, 8, 1000), 128, 1e-6);
  // 8 of 128 over two ranks: 1.09 more than 4 on the fuller one, by exact counting.
  double exact = 0;
  const auto choose_of = [](int n, int k) {
    return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1));
  };
  for (int first = 0; first <= 8; first++)
    exact += std::max(first, 8 - first) * choose_of(64, first) * choose_of(64, 8 - first) /
             choose_of(128, 8);
  EXPECT_NEAR(experts_in_excess(8, 128, 0.5, 2), exact - 4, 0.06);
  EXPECT_EQ(experts_in_excess(8, 128, 1, 1), 0);
}

std::vector<std::vector<double>> counted(const model::ModelSpec& spec, auto count_of) {
  std::vector<std::vector<double>> use;
  for (const model::Block& block : spec.blocks) {
    use.emplace_back();
    for (int e = 0; block.experts && e < block.experts->count; e++)
      use.back().push_back(count_of(e));
  }
  return use;
}

// So few threads that fewer are slower; the planner goes by them only where it knows the curve.
TEST(Planner, DecodesWithTheFewestThreadsThatAreAsFast) {
  const model::Model model = plan_test::preset("qwen3-30b-a3b", "q8_0", 8);
  Machine machine = plan_test::machine({.topology = plan_test::kOneSocket, .gb_per_s = {300}});
  for (const int parallel : {1, 8}) {
    SCOPED_TRACE(parallel);
    const Request request{.parallel = parallel};
    const Candidate all = plans(model, machine, request)[0];
    const int fewest = all.ranks[0].decode_threads;
    ASSERT_LT(fewest, all.ranks[0].threads);
    const auto with = [&](int threads) {
      Machine smaller = machine;
      smaller.nodes[0].threads = threads;
      return plans(model, smaller, request)[0];
    };
    EXPECT_GT(with(fewest).one.decode, 0.985 * all.one.decode);
    EXPECT_GT(with(fewest).all.decode, 0.985 * all.all.decode);
    EXPECT_LT(with(fewest).one.prefill, all.one.prefill) << "prompts want every thread";
    EXPECT_TRUE(with(fewest - 1).one.decode < 0.995 * all.one.decode ||
                with(fewest - 1).all.decode < 0.995 * all.all.decode);
    machine.read_origin = Origin::kGiven;
    EXPECT_EQ(decode_threads(all, machine), 0);
    machine.read_origin = Origin::kMeasured;
    EXPECT_EQ(decode_threads(all, machine), fewest);
    machine.simulated = true;
    EXPECT_EQ(decode_threads(all, machine), 0) << "parts of a node share its memory";
    machine.simulated = false;
  }
}

TEST(ExpertUse, EvenCountsPredictAsNoneDo) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 6; round++) {
    const Shaped& shaped = kShapes[static_cast<size_t>(round)];
    const model::Model model = plan_test::preset(shaped.preset, shaped.type, 4);
    const Machine machine = random_machine(random);
    Request request{.parallel = 5};
    const auto without = plans(model, machine, request);
    request.expert_use = counted(model.spec, [](int) { return 17.0; });
    const auto with = plans(model, machine, request);
    EXPECT_EQ(with.size(), without.size());
    EXPECT_GT(compare(without, with,
                      [](const Candidate& a, const Candidate& b) {
                        EXPECT_NEAR(a.one.decode / b.one.decode, 1, 1e-9);
                        EXPECT_NEAR(a.all.decode / b.all.decode, 1, 1e-9);
                        EXPECT_NEAR(a.one.prefill / b.one.prefill, 1, 1e-9);
                      }),
              0);
    // Without a single choice nothing is known.
    request.expert_use = counted(model.spec, [](int) { return 0.0; });
    EXPECT_NEAR(plans(model, machine, request)[0].one.decode / without[0].one.decode, 1, 1e-9);
  }
}

// Many tokens that want the same few experts read less; a rank that has one of them and seven that
// have none are less balanced than chance is.
TEST(ExpertUse, HotExpertsAreCounted) {
  const model::Model model = plan_test::preset("mixtral-8x7b", "q4_k", 4);
  const Machine machine =
      plan_test::machine({.topology = plan_test::kEightSockets, .gb_per_s = {100}});
  Request request{.parallel = 8, .nodes = 8, .replicas = 1};
  const auto even = plans(model, machine, request);
  request.expert_use = counted(model.spec, [](int e) { return e < 2 ? 500.0 : 0.0; });
  const auto hot = plans(model, machine, request);
  const Candidate *rows = find(even, "rows over 8"), *hot_rows = find(hot, "rows over 8");
  ASSERT_TRUE(rows != nullptr && hot_rows != nullptr);
  EXPECT_NEAR(hot_rows->one.decode / rows->one.decode, 1, 1e-9) << "a token chooses two either way";
  EXPECT_GT(hot_rows->all.decode, 1.2 * rows->all.decode);
  const Candidate *whole = find(even, "experts over 8"), *hot_whole = find(hot, "experts over 8");
  ASSERT_TRUE(whole != nullptr && hot_whole != nullptr);
  EXPECT_LT(hot_whole->one.decode, whole->one.decode);
  EXPECT_EQ(hot_whole->remarks.front(),
            "experts are dealt out by their counted use: the busiest rank of each layer has 300.0 "
            "% more choices than its share");
  // The plan that is made of it is the one that was counted.
  const auto plan = split(model.spec, split_options(*hot_whole, request));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->ranks[0].blocks[0].owned, std::vector<int32_t>{0});
}

TEST(ExpertUse, OfAnotherModelIsRefusedByEveryStrategy) {
  const model::Model model = plan_test::preset("olmoe-1b-7b", "q4_k", 2);
  const Machine machine = plan_test::machine({.topology = plan_test::kGenoaNps1});
  Request request;
  for (const auto strategy : {Strategy::kRows, Strategy::kExperts, Strategy::kLayers}) {
    request.strategy = strategy;
    request.expert_use = counted(model.spec, [](int) { return 1.0; });
    EXPECT_TRUE(candidates(model, machine, plan_test::packing(), request).ok());
    request.expert_use.back().pop_back();
    const auto refused = candidates(model, machine, plan_test::packing(), request);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("are not of this model"), std::string::npos);
  }
}

TEST(Machine, ReadsAlongItsCurve) {
  MachineNode node{.threads = 8, .read = {{1, 20}, {4, 80}, {8, 100}}};
  EXPECT_DOUBLE_EQ(read_gb_per_s(node, 1), 20);
  EXPECT_DOUBLE_EQ(read_gb_per_s(node, 2), 40);
  EXPECT_DOUBLE_EQ(read_gb_per_s(node, 6), 90);
  EXPECT_DOUBLE_EQ(read_gb_per_s(node, 99), 100);
  EXPECT_EQ(threads_for(node, 0.8), 4);
  EXPECT_EQ(threads_for(node, 0.97), 8);
}

TEST(Machine, KernelsTakeLongerForMoreColumns) {
  const KernelSpeed speed{kernels::TensorType::kQ4_K, {{1, 50}, {4, 100}, {64, 160}}};
  EXPECT_DOUBLE_EQ(weight_ns(speed, 1), 1.0 / 50);
  EXPECT_DOUBLE_EQ(weight_ns(speed, 4), 4.0 / 100);
  EXPECT_DOUBLE_EQ(weight_ns(speed, 2.5), (1.0 / 50 + 4.0 / 100) / 2);
  EXPECT_DOUBLE_EQ(weight_ns(speed, 640), 4.0);
  double before = 0;
  for (double columns = 1; columns < 200; columns *= 1.3) {
    EXPECT_GE(weight_ns(speed, columns), before);
    before = weight_ns(speed, columns);
  }
}

TEST(Machine, TakesWhatWasGivenBeforeWhatWasMeasured) {
  shm::MachineProfile profile;
  profile.facts.nodes = {{.os_index = 0, .cores = 4, .cpus = "0-3", .distances = {}}};
  const auto read = [](int threads, double gb) {
    return shm::BandwidthFigure{shm::Traffic::kRead, shm::PageKind::kHuge, 0, 0, threads,
                                {gb, gb, gb, 5}};
  };
  profile.bandwidth = {read(1, 25), read(4, 80)};
  profile.exchanges = {{1, 4, false, 0, {500, 500, 500, 5}},
                       {2, 2, true, 256, {1000, 1000, 1000, 5}},
                       {2, 2, true, 262144, {53429, 53429, 53429, 5}}};
  profile.kernels = {{"avx2", "Q8_0", 1, false, {30, 30, 30, 5}},
                     {"avx2", "Q8_0", 64, false, {90, 90, 90, 5}},
                     {"avx2", "attend", 1, false, {7, 7, 7, 5}},
                     {"avx2", "attend", 16, false, {12, 12, 12, 5}},
                     {"avx2", "prepare", 1, false, {2, 2, 2, 5}},
                     {"avx2", "route", 1, false, {0.1, 0.1, 0.1, 5}},
                     {"avx2", "sample", 1, false, {0.5, 0.5, 0.5, 5}}};
  auto facts = plan_test::host({.topology = "package:1 [numa(memory=8589934592)] core:4 pu:1"});
  facts.profile = &profile;
  const Machine measured = machine_of({facts});
  EXPECT_EQ(measured.read_origin, Origin::kMeasured);
  EXPECT_EQ(measured.kernel_origin, Origin::kMeasured);
  EXPECT_EQ(measured.meeting_origin, Origin::kMeasured);
  EXPECT_DOUBLE_EQ(read_gb_per_s(measured.nodes[0], 4), 80);
  EXPECT_NEAR(measured.meeting.gather_gb_per_s, 5.0, 0.01);
  EXPECT_DOUBLE_EQ(measured.thread.attend, 7);
  EXPECT_DOUBLE_EQ(measured.thread.attend_together, 12);
  EXPECT_DOUBLE_EQ(weight_ns(kernel_speed(measured, kernels::TensorType::kQ8_0), 1), 1.0 / 30);
  // Weights that lie in small pages are read like those.
  profile.facts.arena_file_system = "tmpfs";
  profile.bandwidth.push_back(read(4, 50));
  profile.bandwidth.back().pages = shm::PageKind::kSmall;
  EXPECT_DOUBLE_EQ(read_gb_per_s(machine_of({facts}).nodes[0], 4), 50);
  profile.facts.arena_file_system = "tmpfs huge=within_size";
  EXPECT_DOUBLE_EQ(read_gb_per_s(machine_of({facts}).nodes[0], 4), 80);
  facts.gb_per_s = {60};
  const Machine given = machine_of({facts});
  EXPECT_EQ(given.read_origin, Origin::kGiven);
  EXPECT_DOUBLE_EQ(read_gb_per_s(given.nodes[0], given.nodes[0].threads), 60);
  facts.gb_per_s.clear();
  facts.profile = nullptr;
  const Machine assumed = machine_of({facts});
  EXPECT_EQ(assumed.read_origin, Origin::kAssumed);
  EXPECT_GE(assumed.notes.size(), 3u);
}

}  // namespace
}  // namespace plan
