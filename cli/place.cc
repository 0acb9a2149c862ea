#include "cli/place.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/cat.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

base::Error invalid(const std::string& sentence) {
  return {base::Code::kInvalidArgument, sentence};
}

/// The numbers of `text`, all of them in `possible`. `names` is an option and what its numbers are.
base::Result<std::vector<int>> read_list(const char* option, const char* what,
                                         const std::string& text,
                                         const std::vector<int>& possible) {
  auto numbers = shm::parse_number_list(text);
  if (!numbers.ok()) return invalid(base::cat(option, " ", numbers.error().message));
  std::vector<int> missing;
  for (const int number : *numbers)
    if (std::find(possible.begin(), possible.end(), number) == possible.end())
      missing.push_back(number);
  if (missing.empty()) return numbers;
  return invalid(base::cat(option, ": this process may not use ", what, " ",
                           shm::cpu_list(std::move(missing)), ", only ",
                           possible.empty() ? "none" : shm::cpu_list(possible)));
}

/// Part `index` of `count` of some CPUs, at least one.
std::vector<int> share_of(const std::vector<int>& cpus, int index, int count) {
  const auto own = static_cast<size_t>(index), all = static_cast<size_t>(count);
  const size_t begin = own * cpus.size() / all, end = (own + 1) * cpus.size() / all;
  if (begin == end) return {cpus[begin]};
  return {cpus.begin() + static_cast<std::ptrdiff_t>(begin),
          cpus.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

base::Result<Machine> read_machine(const std::string& source) {
  Machine machine;
  if (source.empty()) {
    ASSIGN_OR_RETURN(machine.whole, shm::read_whole_topology({}));
    machine.allowed = shm::read_allowed();
    machine.cpu_quota = shm::read_cpu_quota();
    return machine;
  }
  std::error_code none;
  const auto kind = std::filesystem::exists(source, none) ? shm::TopologyKind::kXmlFile
                                                          : shm::TopologyKind::kSynthetic;
  auto whole = shm::read_whole_topology({.kind = kind, .text = source});
  if (!whole.ok())
    return base::Error{whole.error().code,
                       base::cat("--topology: ", whole.error().message,
                                 "; it takes a file by `lstopo file.xml`, or a text such as "
                                 "\"package:2 [numa] core:8 pu:2\"")};
  machine.whole = std::move(*whole);
  return machine;
}

base::Result<shm::Topology> choose_from(const Machine& machine, const PlaceOptions& options) {
  shm::Topology topology = shm::restrict_to(machine.whole, machine.allowed);
  shm::AllowedSets chosen;
  if (options.numa_nodes != "auto") {
    std::vector<int> possible;
    for (const shm::Node& node : topology.nodes) possible.push_back(node.os_index);
    ASSIGN_OR_RETURN(chosen.nodes,
                     read_list("--numa-nodes", "NUMA node", options.numa_nodes, possible));
    for (const shm::Node& node : topology.nodes) {
      const bool is_chosen = std::count(chosen.nodes->begin(), chosen.nodes->end(), node.os_index);
      if (is_chosen && node.cores.empty())
        return invalid(base::cat("--numa-nodes: node ", node.os_index,
                                 " has memory but no CPU that this process may use, so no rank "
                                 "can be there"));
    }
    topology = shm::restrict_to(topology, chosen);
  }
  if (!options.cpus.empty()) {
    std::vector<int> possible;
    for (const shm::Node& node : topology.nodes)
      for (const shm::Core& core : node.cores)
        possible.insert(possible.end(), core.cpus.begin(), core.cpus.end());
    ASSIGN_OR_RETURN(chosen.cpus, read_list("--cpus", "CPU", options.cpus, possible));
    topology = shm::restrict_to(topology, chosen);
  }
  return topology;
}

base::Result<shm::Placement> place_ranks(const Machine& machine, const PlaceOptions& options) {
  ASSIGN_OR_RETURN(const shm::Topology topology, choose_from(machine, options));
  // CPUs that are named are meant: slow ones, second threads, and the broker's too.
  const bool named = !options.cpus.empty();
  shm::PlacementOptions placement{.ranks = options.nodes,
                                  .threads_per_rank = options.threads_per_node,
                                  .efficient_cores = named,
                                  .second_threads = named,
                                  .reserve_cores = named ? 0 : 1,
                                  .cpu_quota = machine.cpu_quota};
  placement.simulate = options.nodes > shm::usable_nodes(topology, placement);
  return shm::cpus_for_ranks(topology, placement);
}

base::Result<std::vector<shm::Placement>> divide(const shm::Placement& whole, int replicas) {
  const int ranks = static_cast<int>(whole.ranks.size());
  if (replicas < 1 || (ranks % replicas != 0 && replicas % ranks != 0))
    return invalid(base::cat("--replicas ", replicas, " does not go with ", ranks,
                             " nodes: one number must be a multiple of the other"));
  std::vector<shm::Placement> groups(static_cast<size_t>(replicas));
  const int ranks_each = std::max(ranks / replicas, 1), groups_each = std::max(replicas / ranks, 1);
  for (int index = 0; index < replicas; index++) {
    shm::Placement& group = groups[static_cast<size_t>(index)];
    group.oversubscribed = whole.oversubscribed;
    const int first = index / groups_each * ranks_each;
    for (int rank = first; rank < first + ranks_each; rank++) {
      const shm::RankPlacement& place = whole.ranks[static_cast<size_t>(rank)];
      group.ranks.push_back({.os_node = place.os_node, .cpus = {}});
      group.oversubscribed |= place.cpus.size() < static_cast<size_t>(groups_each);
      group.ranks.back().cpus = share_of(place.cpus, index % groups_each, groups_each);
      if (!whole.shares.empty()) group.shares.push_back(whole.shares[static_cast<size_t>(rank)]);
    }
    const bool even = std::adjacent_find(group.shares.begin(), group.shares.end(),
                                         std::not_equal_to<>()) == group.shares.end();
    if (even) group.shares.clear();
  }
  return groups;
}

base::Result<shm::Placement> place_ranks_here(const PlaceOptions& options, base::Log& log) {
  ASSIGN_OR_RETURN(const Machine machine, read_machine(""));
  ASSIGN_OR_RETURN(shm::Placement placement, place_ranks(machine, options));
  for (const std::string& remark : placement.remarks) log.info(remark);
  if (!placement.note.empty()) log.warning(placement.note);
  return placement;
}

std::vector<int> still_allowed(std::vector<int> cpus, const shm::AllowedSets& allowed) {
  std::erase_if(cpus, [&](int cpu) {
    return cpu >= 0 && allowed.cpus &&
           !std::binary_search(allowed.cpus->begin(), allowed.cpus->end(), cpu);
  });
  if (cpus.empty()) cpus.push_back(-1);
  return cpus;
}

}  // namespace cli
