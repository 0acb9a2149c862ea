#include "shm/probe.h"

#include <algorithm>

#include "base/clock.h"
#include "shm/machine_facts.h"
#include "shm/probe_memory.h"
#include "shm/probe_samples.h"

namespace shm {

namespace {

constexpr size_t kChainBytesMax = size_t{256} << 20;
constexpr size_t kGatherBytesMax = size_t{256} << 10;

/// How long and how often.
struct Effort {
  base::TimeNs window_ns;  // of one sample of bandwidth
  size_t hops;             // of one sample of latency
  int line_batches;
  int gathers;
  int rounds_min, rounds_max;
  base::TimeNs budget_ns;  // of all rounds; the least number of them may take twice as long
};

Effort effort_of(ProbeDepth depth) {
  if (depth == ProbeDepth::kQuick) {
    return {.window_ns = 10'000'000,
            .hops = 10'000,
            .line_batches = 5,
            .gathers = 100,
            .rounds_min = 3,
            .rounds_max = 5,
            .budget_ns = 3'000'000'000};
  }
  return {.window_ns = 40'000'000,
          .hops = 50'000,
          .line_batches = 20,
          .gathers = 400,
          .rounds_min = 3,
          .rounds_max = 15,
          .budget_ns = 20'000'000'000};
}

/// What is measured on: of each node the memory in both kinds of pages, and a random walk.
struct NodeMemory {
  std::optional<ProbeMemory> small, huge, chain_memory;
  std::optional<Chain> chain;

  const ProbeMemory& of(PageKind pages) const { return pages == PageKind::kHuge ? *huge : *small; }
};

/// One quantity and the samples it has so far.
struct Case {
  std::function<base::Result<double>(int round)> sample;
  Spread* result;
  std::vector<double> samples = {};
};

class Probe {
 public:
  Probe(const Topology& topology, const MachineFacts& facts, const ProbeOptions& options,
        const ProbeControl& control)
      : topology_(topology),
        options_(options),
        control_(control),
        effort_(effort_of(options.depth)),
        began_(clock_.now()) {
    profile_.facts = facts;
    profile_.quick = options.depth == ProbeDepth::kQuick;
    profile_.fingerprint = fingerprint_of(facts);
  }

  base::Result<MachineProfile> run() {
    RETURN_IF_ERROR(take_memory());
    RETURN_IF_ERROR(make_plan());
    RETURN_IF_ERROR(run_rounds());
    take_results();
    return std::move(profile_);
  }

 private:
  base::Status stopped() const {
    if (!control_.stop.load(std::memory_order_relaxed)) return {};
    return base::Error{base::Code::kCancelled, "measuring was cancelled"};
  }

  /// CPUs that may touch a node's memory first: its own, else all others'.
  std::vector<int> touching_cpus(size_t node) const {
    std::vector<int> cpus;
    for (size_t other = 0; other < topology_.nodes.size(); ++other) {
      const bool wanted = topology_.nodes[node].cores.empty() || other == node;
      for (const Core& core : topology_.nodes[other].cores)
        if (wanted) cpus.push_back(core.cpus.front());
    }
    return cpus;
  }

  base::Status take_memory();
  base::Status take_node_memory(size_t node, uint64_t bytes);
  base::Status make_plan();
  void add_cases();
  base::Result<double> sample(const BandwidthCase& one, int round);
  base::Status run_rounds();
  void take_results();

  const Topology& topology_;
  const ProbeOptions& options_;
  const ProbeControl& control_;
  Effort effort_;
  const base::SteadyClock clock_;
  const base::TimeNs began_;
  std::vector<NodeMemory> memory_;  // [nodes]
  ProbePlan plan_;
  std::unique_ptr<ExchangeRig> group_, alone_;  // all ranks; rank 0 by itself
  std::vector<Case> cases_;
  std::vector<double> cpu_shares_;  // of all samples of bandwidth
  MachineProfile profile_;
};

base::Status Probe::take_memory() {
  ASSIGN_OR_RETURN(const std::vector<uint64_t> bytes,
                   plan_memory(topology_, profile_.facts, options_));
  memory_.resize(topology_.nodes.size());
  for (size_t node = 0; node < memory_.size(); ++node)
    if (bytes[node] > 0) RETURN_IF_ERROR(take_node_memory(node, bytes[node]));
  return {};
}

base::Status Probe::take_node_memory(size_t node, uint64_t bytes) {
  const std::vector<int> cpus = touching_cpus(node);
  if (cpus.empty()) {
    return base::Error{base::Code::kInvalidArgument,
                       "no core is allowed; look at taskset and the cgroup's cpuset"};
  }
  NodeMemory& own = memory_[node];
  const auto take = [&](PageKind pages, uint64_t size, std::optional<ProbeMemory>& into) {
    auto memory = ProbeMemory::create(
        {.bytes = size, .os_node = topology_.nodes[node].os_index, .pages = pages, .cpus = cpus},
        control_.stop);
    if (!memory.ok()) return base::Status(memory.error());
    into.emplace(std::move(*memory));
    return stopped();
  };
  RETURN_IF_ERROR(take(PageKind::kSmall, bytes, own.small));
  profile_.memory.push_back(own.small->figure());
  // The memory of others can only be had by binding.
  if (topology_.nodes[node].cores.empty() && !profile_.memory.back().bound) {
    own.small.reset();
    return {};
  }
  RETURN_IF_ERROR(take(PageKind::kHuge, bytes, own.huge));
  profile_.memory.push_back(own.huge->figure());
  if (!own.huge->as_asked()) own.huge.reset();
  RETURN_IF_ERROR(take(own.huge ? PageKind::kHuge : PageKind::kSmall,
                       std::min<uint64_t>(bytes, kChainBytesMax), own.chain_memory));
  ASSIGN_OR_RETURN(Chain chain, Chain::create(*own.chain_memory, cpus));
  own.chain.emplace(std::move(chain));
  return stopped();
}

base::Status Probe::make_plan() {
  std::vector<ObtainedPages> obtained;
  for (const NodeMemory& own : memory_)
    obtained.push_back({.small = own.small.has_value(), .huge = own.huge.has_value()});
  ASSIGN_OR_RETURN(plan_, plan_probe(topology_, obtained, profile_.facts.cpu_quota, options_));
  const Placement& placement = plan_.placement;
  ASSIGN_OR_RETURN(group_, ExchangeRig::create({.ranks = placement.ranks,
                                                .gather_bytes_max = kGatherBytesMax,
                                                .oversubscribed = placement.oversubscribed},
                                               control_.stop));
  ASSIGN_OR_RETURN(alone_, ExchangeRig::create({.ranks = {placement.ranks.front()},
                                                .gather_bytes_max = kGatherBytesMax,
                                                .oversubscribed = placement.oversubscribed},
                                               control_.stop));
  add_cases();
  // On many nodes the least number of rounds has to fit into the time, too.
  constexpr base::TimeNs kWindowLeast = 5'000'000;
  const auto windows = static_cast<base::TimeNs>(plan_.bandwidth.size()) * (effort_.rounds_min + 1);
  const base::TimeNs fitting = effort_.budget_ns / std::max<base::TimeNs>(windows, 1);
  effort_.window_ns = std::clamp(fitting, kWindowLeast, effort_.window_ns);
  return {};
}

void Probe::add_cases() {
  for (BandwidthCase& one : plan_.bandwidth)
    cases_.push_back(
        {[this, &one](int round) { return sample(one, round); }, &one.figure.gb_per_s});
  for (LatencyCase& one : plan_.latency) {
    cases_.push_back({[this, &one](int) {
                        Chain& chain = *memory_[one.stream.memory_node].chain;
                        return chain.sample(one.stream.cpu, effort_.hops);
                      },
                      &one.figure.ns});
  }
  for (LineFigure& one : plan_.lines) {
    cases_.push_back({[this, &one](int) {
                        return sample_line(one.cpu_a, one.cpu_b, effort_.line_batches,
                                           control_.stop);
                      },
                      &one.ns});
  }
  for (ExchangeCase& one : plan_.exchanges) {
    cases_.push_back(
        {[this, &one, gathers = effort_.gathers](int) mutable -> base::Result<double> {
           ExchangeRig& rig = one.whole_group ? *group_ : *alone_;
           ASSIGN_OR_RETURN(const double ns, rig.sample({.gather_bytes = one.figure.gather_bytes,
                                                         .gathers = gathers},
                                                        control_.stop));
           // Ranks that must share a CPU take a thousand times as long.
           const double fit = static_cast<double>(effort_.window_ns) / std::max(ns, 1.0);
           gathers = static_cast<int>(std::clamp<double>(fit, 10, effort_.gathers));
           return ns;
         },
         &one.figure.ns});
  }
}

base::Result<double> Probe::sample(const BandwidthCase& one, int round) {
  std::vector<size_t> threads_on(memory_.size()), taken(memory_.size());
  for (const Stream& stream : one.streams) ++threads_on[stream.memory_node];
  std::vector<StreamSlice> slices;
  for (const Stream& stream : one.streams) {
    const size_t node = stream.memory_node;
    slices.push_back(
        {stream.cpu, memory_[node].of(one.figure.pages).part(taken[node]++, threads_on[node])});
  }
  ASSIGN_OR_RETURN(
      const Bandwidth bandwidth,
      sample_bandwidth(
          slices, {.traffic = one.figure.traffic, .window_ns = effort_.window_ns, .round = round},
          control_.stop));
  cpu_shares_.push_back(bandwidth.cpu_share);
  return bandwidth.gb_per_s;
}

base::Status Probe::run_rounds() {
  const base::TimeNs begin = clock_.now();
  const auto all = static_cast<double>(cases_.size());
  int shown = 0;
  for (int round = 0; round <= effort_.rounds_max; ++round) {
    const double spent =
        static_cast<double>(clock_.now() - begin) / static_cast<double>(effort_.budget_ns);
    // The first round does not count, so this leaves the least number; on a machine that is so slow
    // that it would take several times the budget, one round has to do.
    if (round > effort_.rounds_min && spent >= 1) break;
    if (round > 1 && spent >= 2) break;
    for (size_t i = 0; i < cases_.size(); ++i) {
      ASSIGN_OR_RETURN(const double value, cases_[i].sample(round));
      RETURN_IF_ERROR(stopped());
      if (round > 0) cases_[i].samples.push_back(value);
      // The share of the rounds or of the time, whichever ends first; not before the least rounds.
      const double rounds = round + static_cast<double>(i + 1) / all;
      const double share = std::max(rounds / (effort_.rounds_max + 1),
                                    std::min(spent, rounds / (effort_.rounds_min + 1)));
      shown = std::max(shown, std::min(99, static_cast<int>(100 * share)));
      control_.on_progress(shown);
    }
  }
  for (Case& one : cases_) *one.result = spread_of(std::move(one.samples));
  control_.on_progress(100);
  return {};
}

void Probe::take_results() {
  for (const BandwidthCase& one : plan_.bandwidth) profile_.bandwidth.push_back(one.figure);
  for (const LatencyCase& one : plan_.latency) profile_.latency.push_back(one.figure);
  profile_.lines = plan_.lines;
  for (const ExchangeCase& one : plan_.exchanges) profile_.exchanges.push_back(one.figure);
  profile_.seconds = static_cast<double>(clock_.now() - began_) / 1e9;
  profile_.cpu_share = spread_of(std::move(cpu_shares_)).median;
  profile_.notes = notes_on(profile_);
  if (!plan_.placement.note.empty()) profile_.notes.push_back(plan_.placement.note);
}

}  // namespace

base::Result<MachineProfile> run_probe(const Topology& topology, const MachineFacts& facts,
                                       const ProbeOptions& options, const ProbeControl& control) {
  return Probe(topology, facts, options, control).run();
}

}  // namespace shm
