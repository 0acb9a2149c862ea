#include "cli/layout.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/cat.h"
#include "cli/commands.h"
#include "cli/place.h"
#include "cli/probe_report.h"
#include "cli/profile_store.h"
#include "kernels/kv_type.h"
#include "kernels/ops.h"
#include "plan/report.h"
#include "shm/arena_room.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

/// Numbers of this size tell shares apart and stay whole.
constexpr double kShareUnits = 1000;

bool serves(const Options& options) {
  return options.command == Command::kServe;
}

PlaceOptions place_of(const Options& options) {
  PlaceOptions place = place_options(options);
  // Threads are asked for by rank, and several may be on a node.
  if (options.nodes > 0 && options.replicas > options.nodes)
    place.threads_per_node *= static_cast<int>(options.replicas / options.nodes);
  return place;
}

/// Groups as the options fix them.
base::Result<std::vector<shm::Placement>> fixed_groups(const Options& options,
                                                       const shm::Placement& whole) {
  const bool one_a_node = options.strategy == "replicas" && options.replicas == 0;
  const int64_t replicas = one_a_node ? static_cast<int64_t>(whole.ranks.size())
                                      : std::max<int64_t>(options.replicas, 1);
  return divide(whole, static_cast<int>(replicas));
}

/// The places of all groups, as nodes for the planner.
shm::Placement places_of(const std::vector<shm::Placement>& groups) {
  shm::Placement all;
  for (const shm::Placement& group : groups)
    all.ranks.insert(all.ranks.end(), group.ranks.begin(), group.ranks.end());
  return all;
}

/// What a candidate takes of these places.
std::vector<shm::Placement> groups_of(const plan::Candidate& candidate,
                                      const shm::Placement& places) {
  std::vector<shm::Placement> groups(static_cast<size_t>(candidate.replicas));
  const auto each = static_cast<size_t>(candidate.ranks_per_replica());
  for (size_t index = 0; index < candidate.ranks.size(); index++) {
    shm::Placement& group = groups[index / each];
    const plan::RankPlan& rank = candidate.ranks[index];
    group.ranks.push_back(places.ranks[static_cast<size_t>(rank.node)]);
    group.shares.push_back(std::max(1.0, std::round(rank.share * kShareUnits)));
  }
  for (shm::Placement& group : groups) {
    const auto [least, most] = std::minmax_element(group.shares.begin(), group.shares.end());
    if (*least == *most) group.shares.clear();
  }
  return groups;
}

std::string number(double value) {
  if (value >= 100) return base::cat(std::llround(value));
  const long long tenths = std::llround(value * 10);
  return base::cat(tenths / 10, ".", tenths % 10);
}

/// What is told of a plan.
struct Told {
  const plan::Candidate& candidate;
  const plan::Machine& machine;
  const plan::Request& request;
  const std::string& why;
  int decode_threads = 0;
  bool asked = false;  // for those threads
};

std::string ranks_table(const Told& told) {
  const plan::Candidate& candidate = told.candidate;
  std::vector<std::vector<std::string>> rows = {
      {"rank", "node", "threads", "weights", "KV cache", "buffers", "of"}};
  if (candidate.replicas > 1) rows[0].insert(rows[0].begin(), "replica");
  const int each = candidate.ranks_per_replica();
  for (int index = 0; index < static_cast<int>(candidate.ranks.size()); index++) {
    const plan::RankPlan& rank = candidate.ranks[static_cast<size_t>(index)];
    const plan::MachineNode& node = told.machine.nodes[static_cast<size_t>(rank.node)];
    const bool fewer = told.decode_threads > 0 && told.decode_threads < rank.threads;
    rows.push_back(
        {base::cat(index % each), base::cat(node.os_index),
         base::cat(rank.threads, fewer ? base::cat(" (", told.decode_threads, " decode)") : ""),
         shm::memory_text(rank.memory.weights), shm::memory_text(rank.memory.kv),
         shm::memory_text(rank.memory.exchange + rank.memory.scratch),
         shm::memory_text(rank.node_bytes)});
    if (candidate.replicas > 1) rows.back().insert(rows.back().begin(), base::cat(index / each));
  }
  return text_table(rows);
}

std::string plan_text(const Told& told) {
  const auto& [candidate, machine, request, why, threads, asked] = told;
  std::string text =
      base::cat("plan: ", candidate.name(), machine.simulated ? " (parts of nodes)" : "",
                why.empty() ? "" : base::cat("; chosen because ", why), "\n");
  text += ranks_table(told);
  text += base::cat("  predicted: ", number(candidate.one.decode), " tokens/s, ",
                    number(candidate.one.prefill), " of a prompt; limit: ", candidate.limit, "\n");
  if (request.parallel > 1)
    text += base::cat("             ", number(candidate.all.decode), " tokens/s of ",
                      request.parallel, " requests together\n");
  if (asked)
    text += "             with all threads; that --decode-threads are as fast nobody has said\n";
  text += base::cat(
      "             from bandwidth that is ", plan::origin_name(machine.read_origin), ", kernels ",
      plan::origin_name(machine.kernel_origin), ", waits ",
      plan::origin_name(machine.meeting_origin),
      machine.read_origin == plan::Origin::kAssumed ? "; numoe probe --save measures them" : "",
      "\n");
  for (const std::string& remark : candidate.remarks) text += base::cat("  ", remark, "\n");
  if (!request.expert_use.empty() && candidate.strategy != plan::Strategy::kExperts)
    text += "  the counts of --expert-use are in this prediction; no rank has whole experts\n";
  return text;
}

/// The best of a strategy and number of groups that are fixed, or of all.
struct Picked {
  plan::Candidate candidate;
  std::string why;  // empty: there was no choice
};
base::Result<Picked> pick(const LayoutInput& input, const plan::Machine& machine,
                          const plan::Request& request) {
  ASSIGN_OR_RETURN(const plan::Packing packing, plan_packing(input.options));
  ASSIGN_OR_RETURN(auto all, plan::candidates(input.model, machine, packing, request));
  const plan::Choice choice = plan::choose(all, request);
  // What does not fit is refused later, by what is free now.
  const bool chosen = all.size() > 1 && choice.index.has_value();
  return Picked{std::move(all[choice.index.value_or(0)]), chosen ? choice.why : ""};
}

/// What was measured on this machine, if somebody saved it.
std::optional<shm::MachineProfile> stored_profile(const shm::Topology& topology, base::Log& log) {
  const auto directory = state_directory();
  if (!directory.ok()) return std::nullopt;
  const shm::MachineFacts facts = shm::read_machine_facts(topology);
  auto profile = load_profile(*directory, shm::fingerprint_of(facts));
  if (profile.ok()) return std::move(*profile);
  if (profile.error().code != base::Code::kNotFound)
    log.info(base::cat("the saved probe is not used: ", profile.error().message));
  return std::nullopt;
}

}  // namespace

plan::KvElement plan_kv(const Options& options) {
  const kernels::KvType otherwise =
      options.isa == "reference" ? kernels::KvType::kF32 : kernels::KvType::kF16;
  const kernels::KvType type = kernels::find_kv_type(options.kv_type).value_or(otherwise);
  const kernels::KvElement element = kernels::kv_element(type);
  return {.name = kernels::kv_type_name(type),
          .bytes = element.bytes,
          .scale_bytes = element.scale_bytes};
}

plan::Request plan_request(const Options& options) {
  plan::Request request{
      .context = options.context,
      .parallel = serves(options) ? static_cast<int>(options.parallel) : 1,
      .kv = plan_kv(options),
      .chunk = static_cast<int>(options.chunk > 0 ? options.chunk : kDefaultChunk),
      .strategy = plan::find_strategy(options.strategy),
      .stages = static_cast<int>(options.stages),
      .nodes = static_cast<int>(options.nodes),
      .replicas = serves(options) ? static_cast<int>(options.replicas) : 1};
  if (options.objective == "throughput") request.objective = plan::Objective::kThroughput;
  return request;
}

base::Result<plan::Packing> plan_packing(const Options& options) {
  ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops(options.isa));
  return plan::Packing{.panel_bytes =
                           [ops](kernels::TensorType type, int64_t k) {
                             return static_cast<uint64_t>(
                                 kernels::panel_bytes(kernels::layout_for(type, *ops), type, k));
                           },
                       .is_fast =
                           [ops](kernels::TensorType type) {
                             return kernels::layout_for(type, *ops) != kernels::Layout::kRows;
                           }};
}

base::Result<Layout> choose_layout(const LayoutInput& input) {
  const Options& options = input.options;
  ASSIGN_OR_RETURN(std::vector<shm::Placement> groups, fixed_groups(options, input.whole));
  const shm::Placement places = places_of(groups);
  ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops(options.isa));
  // Of the memory all, not what is free now: a server that takes over the workers of a killed one
  // must find the same plan. What is free is asked before loading.
  const plan::Machine machine = plan::machine_of({{.topology = input.topology,
                                                   .placement = places,
                                                   .profile = input.profile,
                                                   .isa = ops->name}});
  const bool simulated = std::any_of(places.ranks.begin(), places.ranks.end(),
                                     [](const auto& rank) { return rank.os_node < 0; });
  const bool free = options.strategy == "auto" && input.whole.ranks.size() > 1 && !simulated &&
                    static_cast<int64_t>(input.whole.ranks.size()) >= options.replicas;
  plan::Request request = plan_request(options);
  Layout layout{.strategy = request.strategy.value_or(plan::Strategy::kRows),
                .stages = request.stages,
                .groups = std::move(groups)};
  if (!free) {
    request.strategy = layout.strategy;
    request.nodes = static_cast<int>(places.ranks.size());
    request.replicas = static_cast<int>(layout.groups.size());
    request.shares = layout.groups[0].shares;
    if (request.stages == 0) request.stages = static_cast<int>(layout.groups[0].ranks.size());
  }
  request.expert_use = input.expert_use;
  ASSIGN_OR_RETURN(const Picked picked, pick(input, machine, request));
  if (free) {
    layout.strategy = picked.candidate.strategy;
    layout.stages = layout.strategy == plan::Strategy::kLayers ? picked.candidate.stages : 0;
    layout.groups = groups_of(picked.candidate, places);
    for (shm::Placement& group : layout.groups) group.oversubscribed = input.whole.oversubscribed;
  }
  layout.decode_threads = options.decode_threads > 0
                              ? static_cast<int>(options.decode_threads)
                              : plan::decode_threads(picked.candidate, machine);
  layout.text = plan_text({picked.candidate, machine, request, picked.why, layout.decode_threads,
                           options.decode_threads > 0});
  return layout;
}

base::Result<Layout> choose_layout(const Options& options, base::Log& log) {
  ASSIGN_OR_RETURN(const Machine machine, read_machine(""));
  const PlaceOptions place = place_of(options);
  ASSIGN_OR_RETURN(const shm::Topology topology, choose_from(machine, place));
  ASSIGN_OR_RETURN(const shm::Placement whole, place_ranks(machine, place));
  for (const std::string& remark : whole.remarks) log.info(remark);
  if (!whole.note.empty()) log.warning(whole.note);
  ASSIGN_OR_RETURN(auto expert_use, counted_expert_use(options));
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(options.model));
  // Whatever the options leave out, the machine is the one that was measured.
  const std::optional<shm::MachineProfile> profile =
      stored_profile(shm::restrict_to(machine.whole, machine.allowed), log);
  return choose_layout({.options = options,
                        .model = model,
                        .topology = topology,
                        .whole = whole,
                        .profile = profile ? &*profile : nullptr,
                        .expert_use = std::move(expert_use)});
}

}  // namespace cli
