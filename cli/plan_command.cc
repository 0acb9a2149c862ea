#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>

#include "base/cat.h"
#include "cli/commands.h"
#include "cli/hosts_file.h"
#include "cli/layout.h"
#include "cli/place.h"
#include "cli/plan_json.h"
#include "cli/profile_json.h"
#include "cli/profile_store.h"
#include "model/architectures.h"
#include "model/synth.h"
#include "plan/report.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

using base::cat;

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr const char* kOtherIsa = "avx512vnni";  // of machines of which nothing is said

base::Error invalid(std::string text) {
  return {base::Code::kInvalidArgument, std::move(text)};
}

base::Result<std::string> read_text(const std::string& option, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.good() && !in.eof())
    return base::Error{base::Code::kNotFound, cat(option, ": cannot read ", path)};
  return text;
}

/// A file's header, or a shape without a file.
base::Result<model::Model> model_of(const Options& options) {
  if (options.preset.empty() == options.model.empty())
    return invalid("name either a model file or a shape with --shape");
  if (options.preset.empty()) return model::load_model(options.model, model::Extent::kHeader);
  const model::SynthShape* shape = model::find_synth_preset(options.preset);
  if (shape == nullptr) return invalid(cat("no shape is named ", options.preset));
  // What the tokens are is of no importance.
  model::Metadata vocabulary;
  vocabulary.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  ASSIGN_OR_RETURN(const model::SynthPlan plan,
                   model::plan_synth(*shape,
                                     {.architecture = options.architecture,
                                      .weight_type = options.weight_type,
                                      .layers = options.layers},
                                     vocabulary));
  return model::build_model(std::make_unique<const model::Directory>(model::synth_directory(plan)));
}

/// Facts of the hosts, with the profiles that they point to.
struct Hosts {
  std::vector<plan::HostFacts> facts;
  std::list<shm::MachineProfile> profiles;  // a list: facts point into it
};

std::vector<uint64_t> bytes_of(const std::vector<double>& gib) {
  std::vector<uint64_t> bytes;
  for (const double one : gib) bytes.push_back(static_cast<uint64_t>(one * kGib));
  return bytes;
}

/// What is free now, by place; places on one node share it.
std::vector<uint64_t> free_memory(const shm::MachineFacts& facts, const shm::Topology& topology,
                                  const shm::Placement& placement) {
  std::vector<int> homes;
  for (const shm::RankPlacement& rank : placement.ranks) {
    int home = topology.nodes.front().os_index;
    for (const shm::Node& node : topology.nodes)
      for (const shm::Core& core : node.cores)
        if (!rank.cpus.empty() && std::ranges::count(core.cpus, rank.cpus.front()) > 0)
          home = node.os_index;
    homes.push_back(home);
  }
  std::vector<uint64_t> bytes;
  for (const int home : homes) {
    uint64_t free = 0;
    for (const shm::NodeFacts& node : facts.nodes)
      if (node.os_index == home) free = node.free_bytes;
    if (facts.memory_limit_bytes > 0)
      free = std::min(free, facts.memory_limit_bytes / std::max<size_t>(facts.nodes.size(), 1));
    bytes.push_back(free / static_cast<uint64_t>(std::ranges::count(homes, home)));
  }
  return bytes;
}

base::Status take_profile(const Options& options, const shm::Topology& topology, Context& context,
                          Hosts& hosts) {
  if (!options.profile_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_text("--profile", options.profile_file));
    ASSIGN_OR_RETURN(hosts.profiles.emplace_back(), profile_from_json(text));
  } else if (options.topology.empty()) {
    const auto directory = state_directory();
    if (!directory.ok()) return {};
    auto saved = load_profile(*directory, shm::fingerprint_of(shm::read_machine_facts(topology)));
    if (!saved.ok()) {
      if (saved.error().code != base::Code::kNotFound)
        context.log.info(cat("the saved probe is not used: ", saved.error().message));
      return {};
    }
    hosts.profiles.push_back(std::move(*saved));
  } else {
    return {};
  }
  hosts.facts.back().profile = &hosts.profiles.back();
  return {};
}

/// A synthetic text that says nothing of memory gets some from hwloc, which means nothing.
void forget_made_up_memory(const std::string& topology, shm::Topology& machine) {
  std::error_code none;
  if (topology.empty() || std::filesystem::exists(topology, none)) return;
  if (topology.find("memory=") != std::string::npos) return;
  for (shm::Node& node : machine.nodes) node.memory_bytes = 0;
}

/// This machine, or the one of --topology.
base::Status add_machine(Context& context, Hosts& hosts) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const Machine machine, read_machine(options.topology));
  PlaceOptions place = place_options(options);
  // A number of nodes that are there is a wish, not places.
  const auto there =
      static_cast<int64_t>(shm::restrict_to(machine.whole, machine.allowed).nodes.size());
  if (options.nodes <= there && options.strategy == "auto") place.nodes = 0;
  ASSIGN_OR_RETURN(shm::Topology topology, choose_from(machine, place));
  auto placement = place_ranks(machine, place);
  if (!placement.ok()) return placement.error();
  for (const std::string& remark : placement->remarks) context.log.info(remark);
  if (!placement->note.empty()) context.log.warning(placement->note);
  plan::HostFacts& facts = hosts.facts.emplace_back();
  facts.name = "this host";
  facts.placement = std::move(*placement);
  facts.isa = options.isa;
  if (options.isa == "auto") {
    ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops("auto"));
    facts.isa = options.topology.empty() ? ops->name : kOtherIsa;
  }
  if (options.topology.empty())
    facts.memory_bytes = free_memory(shm::read_machine_facts(topology), topology, facts.placement);
  RETURN_IF_ERROR(
      take_profile(options, shm::restrict_to(machine.whole, machine.allowed), context, hosts));
  forget_made_up_memory(options.topology, topology);
  facts.topology = std::move(topology);
  if (!options.bandwidth.empty()) {
    ASSIGN_OR_RETURN(facts.gb_per_s, parse_figures("--bandwidth", options.bandwidth));
  }
  if (!options.memory.empty()) {
    ASSIGN_OR_RETURN(const auto gib, parse_figures("--memory", options.memory));
    facts.memory_bytes = bytes_of(gib);
  }
  return {};
}

base::Status add_hosts(const Options& options, Hosts& hosts) {
  ASSIGN_OR_RETURN(const std::string text, read_text("--hosts", options.hosts_file));
  auto entries = parse_hosts(text);
  if (!entries.ok()) return invalid(cat(options.hosts_file, ": ", entries.error().message));
  for (const HostEntry& entry : *entries) {
    auto machine = read_machine(entry.topology);
    if (!machine.ok())
      return invalid(cat(options.hosts_file, ": host ", entry.name, ": ", machine.error().message));
    shm::Topology topology = shm::restrict_to(machine->whole, machine->allowed);
    ASSIGN_OR_RETURN(shm::Placement placement, place_ranks(*machine, {}));
    forget_made_up_memory(entry.topology, topology);
    hosts.facts.push_back({.name = entry.name,
                           .topology = std::move(topology),
                           .placement = std::move(placement),
                           .gb_per_s = entry.gb_per_s,
                           .memory_bytes = bytes_of(entry.memory_gib),
                           .link_gbit_per_s = entry.link_gbit_per_s,
                           .round_trip_us = entry.round_trip_us,
                           .isa = entry.isa.empty() ? kOtherIsa : entry.isa});
  }
  return {};
}

/// The layout of these kernels, whether this processor has them or not.
base::Result<plan::Packing> packing_of(const std::string& isa) {
  for (const kernels::Ops* ops : kernels::all_ops()) {
    if (isa != ops->name) continue;
    return plan::Packing{
        .panel_bytes =
            [ops](kernels::TensorType type, int64_t k) {
              return uint64_t{kernels::panel_bytes(kernels::layout_for(type, *ops), type, k)};
            },
        .is_fast =
            [ops](kernels::TensorType type) {
              return kernels::layout_for(type, *ops) != kernels::Layout::kRows;
            }};
  }
  return invalid(cat("no kernels are named ", isa));
}

plan::Request request_of(const Options& options) {
  plan::Request request{
      .context = options.context,
      .parallel = static_cast<int>(options.parallel),
      .depth = options.depth,
      .kv = plan_kv(options),
      .chunk = static_cast<int>(options.chunk > 0 ? options.chunk : kDefaultChunk),
      .strategy = plan::find_strategy(options.strategy),
      .stages = static_cast<int>(options.stages),
      .nodes = static_cast<int>(options.nodes),
      .replicas = static_cast<int>(options.replicas)};
  if (options.objective == "throughput") request.objective = plan::Objective::kThroughput;
  return request;
}

}  // namespace

base::Status plan(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const model::Model model, model_of(options));
  Hosts hosts;
  if (options.hosts_file.empty()) {
    RETURN_IF_ERROR(add_machine(context, hosts));
  } else {
    RETURN_IF_ERROR(add_hosts(options, hosts));
  }
  plan::Request request = request_of(options);
  ASSIGN_OR_RETURN(request.expert_use, counted_expert_use(options));
  const plan::Machine machine = plan::machine_of(hosts.facts);
  if (options.strategy == "replicas") {
    request.strategy = plan::Strategy::kRows;
    if (request.replicas == 0) request.replicas = static_cast<int>(machine.nodes.size());
  }
  ASSIGN_OR_RETURN(const plan::Packing packing, packing_of(hosts.facts.front().isa));
  ASSIGN_OR_RETURN(const std::vector<plan::Candidate> all,
                   plan::candidates(model, machine, packing, request));
  const plan::Choice choice = plan::choose(all, request);
  const plan::ReportOf of{model, machine, request, all};
  return print(options.json ? plan_json(of, choice) + "\n" : plan::report(of, choice));
}

}  // namespace cli
