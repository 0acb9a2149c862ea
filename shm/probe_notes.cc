// The part of shm/probe.h that reads figures and settings: a pure function.
#include <algorithm>

#include "base/cat.h"
#include "shm/probe.h"

namespace shm {

namespace {

using Notes = std::vector<std::string>;

int percent(double share) {
  return static_cast<int>(share * 100);
}

void note_memory(const MachineProfile& profile, Notes& notes) {
  bool unbound = false, unverified = false;
  for (const MemoryFigure& memory : profile.memory) {
    unbound = unbound || !memory.bound;
    unverified = unverified || memory.verified_by.empty();
    const double huge = static_cast<double>(memory.huge_bytes) /
                        static_cast<double>(std::max<uint64_t>(memory.bytes, 1));
    if (memory.asked == PageKind::kHuge && huge < 0.9) {
      notes.push_back(
          base::cat("huge pages: only ", percent(huge), " % of the memory asked for on node ",
                    memory.node, " came in huge pages (transparent_hugepage is '",
                    profile.facts.transparent_huge_pages, "'), so they are not measured there"));
    }
    if (!memory.verified_by.empty() && memory.share_on_node < 0.99) {
      notes.push_back(base::cat("placement: only ", percent(memory.share_on_node),
                                " % of the memory asked for on node ", memory.node,
                                " is there, so its figures mix nodes"));
    }
  }
  if (unbound)
    notes.push_back(
        "placement: the system refuses mbind (containers often do), so pages are where "
        "pinned threads touched them first");
  if (unverified) notes.push_back("placement: the system does not say on which node pages are");
}

void note_settings(const MachineFacts& facts, Notes& notes) {
  if (facts.nodes.size() > 1 && !facts.numa_balancing.empty() && facts.numa_balancing != "0")
    notes.push_back(
        "setting: NUMA balancing is on; it moves pages of programs that do not bind "
        "them: sysctl kernel.numa_balancing=0");
  if (!facts.governor.empty() && facts.governor != "performance")
    notes.push_back(
        base::cat("setting: the frequency governor is '", facts.governor, "'; try 'performance'"));
  if (!facts.hypervisor.empty())
    notes.push_back(
        "this is a virtual machine: caches, nodes and neighbours may not be what they seem");
  if (facts.cpu_quota > 0)
    notes.push_back(base::cat("the cgroup grants ", facts.cpu_quota,
                              " CPUs of time; no more threads are measured at once"));
  for (const NodeFacts& node : facts.nodes)
    if (node.cores == 0)
      notes.push_back(base::cat("node ", node.os_index, " has memory and no allowed core"));
}

/// By the best sample of every node on its own memory, which others disturb least.
void note_slow_nodes(const MachineProfile& profile, Notes& notes) {
  double best = 0;
  std::vector<std::pair<int, double>> nodes;
  for (const NodeFacts& node : profile.facts.nodes) {
    double own = 0;
    for (const BandwidthFigure& figure : profile.bandwidth)
      if (figure.traffic == Traffic::kRead && figure.reader_node == node.os_index &&
          figure.memory_node == node.os_index)
        own = std::max(own, figure.gb_per_s.max);
    if (own > 0) nodes.emplace_back(node.os_index, own);
    best = std::max(best, own);
  }
  for (const auto& [node, own] : nodes)
    if (own < 0.8 * best)
      notes.push_back(
          base::cat("node ", node, " reads its memory at ", percent(own / best),
                    " % of the fastest node's speed: a missing or slower memory module?"));
}

void note_load(const MachineProfile& profile, Notes& notes) {
  if (profile.cpu_share > 0 && profile.cpu_share < 0.9)
    notes.push_back(base::cat("noise: the measuring threads got only ", percent(profile.cpu_share),
                              " % of their CPUs: others use this machine; repeat when it is idle"));
}

}  // namespace

std::vector<std::string> notes_on(const MachineProfile& profile) {
  Notes notes;
  note_memory(profile, notes);
  note_settings(profile.facts, notes);
  note_slow_nodes(profile, notes);
  note_load(profile, notes);
  for (const ExchangeFigure& figure : profile.exchanges)
    if (figure.simulated && figure.ranks > 1) {
      notes.push_back(base::cat("exchange: the ", figure.ranks,
                                " ranks are simulated: they share a node, so lines travel less far "
                                "than between nodes"));
      break;
    }
  return notes;
}

}  // namespace shm
