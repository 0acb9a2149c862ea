#include "cli/topology_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/cat.h"
#include "cli/probe_report.h"
#include "model/printable.h"
#include "shm/machine_facts.h"

namespace cli {

namespace {

constexpr size_t kColumns = 100;

bool is_allowed(const std::optional<std::vector<int>>& allowed, int number) {
  return !allowed || std::find(allowed->begin(), allowed->end(), number) != allowed->end();
}

std::string memory_text(uint64_t bytes) {
  constexpr uint64_t kMib = 1 << 20, kGib = kMib << 10;
  if (bytes == 0) return "no memory";
  if (bytes < kGib) return base::cat(bytes / kMib, " MiB");
  if (bytes >= 100 * kGib) return base::cat((bytes + kGib / 2) / kGib, " GiB");
  const uint64_t tenths = (bytes * 10 + kGib / 2) / kGib;
  return base::cat(tenths / 10, ".", tenths % 10, " GiB");
}

/// "[0 8]": the CPUs of a core; "(8)" is forbidden here, "e" a slower core.
std::string core_text(const shm::Core& core, const shm::AllowedSets& allowed) {
  std::string text = "[";
  for (const int cpu : core.cpus)
    text += base::cat(text.size() > 1 ? " " : "",
                      is_allowed(allowed.cpus, cpu) ? base::cat(cpu) : base::cat("(", cpu, ")"));
  return base::cat(text, core.efficient ? "]e" : "]");
}

/// `words` after `head`, broken into lines that go on below the first word.
std::string wrapped(const std::string& head, const std::vector<std::string>& words) {
  std::string text, line = head;
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > kColumns && line.size() > head.size()) {
      text += line + "\n";
      line = std::string(head.size(), ' ');
    }
    line += base::cat(" ", word);
  }
  return text + line + "\n";
}

std::string cores_text(const shm::Node& node, const Machine& machine) {
  std::string text;
  for (size_t i = 0; i < node.cores.size();) {
    const int cache = node.cores[i].last_cache;
    std::vector<std::string> words;
    for (; i < node.cores.size() && node.cores[i].last_cache == cache; ++i)
      words.push_back(core_text(node.cores[i], machine.allowed));
    const std::string name =
        cache < 0
            ? "no shared cache"
            : base::cat("cache ",
                        memory_text(machine.whole.last_cache_bytes[static_cast<size_t>(cache)]));
    text += wrapped(
        base::cat("    ", name, std::string(name.size() < 16 ? 16 - name.size() : 0, ' ')), words);
  }
  return text;
}

std::string packages_text(const shm::Node& node) {
  std::set<int> packages;
  for (const shm::Core& core : node.cores) packages.insert(core.package);
  if (packages.empty()) return "no package: memory only";
  return base::cat(packages.size() == 1 ? "package " : "packages ",
                   shm::cpu_list({packages.begin(), packages.end()}));
}

std::string picture(const Machine& machine) {
  std::string text, package;
  for (const shm::Node& node : machine.whole.nodes) {
    const std::string own = packages_text(node);
    if (own != package) text += own + "\n";
    package = own;
    text += base::cat(
        "  NUMA node ", node.os_index, ", ", memory_text(node.memory_bytes),
        node.cores.empty() ? ", no CPUs" : "",
        is_allowed(machine.allowed.nodes, node.os_index) ? "" : ", its memory is not allowed here",
        "\n", cores_text(node, machine));
  }
  return text +
         "\n[0 8] is a core with its CPUs, (8) a CPU that is not allowed here, e a slower core\n";
}

std::string distances_text(const shm::Topology& whole) {
  std::vector<std::vector<std::string>> rows = {{"distance"}};
  for (const shm::Node& node : whole.nodes) {
    if (node.distances.empty()) return "";
    rows.front().push_back(base::cat("node ", node.os_index));
    rows.push_back({base::cat("node ", node.os_index)});
    for (const uint64_t distance : node.distances) rows.back().push_back(base::cat(distance));
  }
  return base::cat("\n", text_table(rows));
}

std::string listed(const char* what, const std::optional<std::vector<int>>& numbers) {
  if (!numbers) return base::cat("all ", what);
  return base::cat(what, " ", shm::cpu_list(*numbers));
}

std::string limits_text(const Machine& machine) {
  return base::cat("\nallowed here: ", listed("CPUs", machine.allowed.cpus), ", memory of ",
                   listed("nodes", machine.allowed.nodes), ", ",
                   machine.cpu_quota > 0 ? base::cat(machine.cpu_quota, " CPUs of time (cgroup)")
                                         : "no quota of CPU time",
                   "\n");
}

std::string ranks_text(const shm::Placement& placement) {
  std::string text = "\nwith these options\n";
  for (size_t rank = 0; rank < placement.ranks.size(); ++rank) {
    const shm::RankPlacement& own = placement.ranks[rank];
    std::vector<std::string> cpus;
    for (const int cpu : own.cpus) cpus.push_back(base::cat(cpu));
    text += wrapped(base::cat("  rank ", rank, own.os_node < 0 ? ", simulated" : " on NUMA node ",
                              own.os_node < 0 ? "" : base::cat(own.os_node), ", ", cpus.size(),
                              cpus.size() == 1 ? " thread:" : " threads:"),
                    cpus);
  }
  for (const std::string& remark : placement.remarks) text += base::cat("note: ", remark, "\n");
  if (!placement.note.empty()) text += base::cat("warning: ", placement.note, "\n");
  return text;
}

/// "[1,2]" of what `to_text` makes of each element.
template <class Range, class ToText>
std::string json_array(const Range& range, const ToText& to_text) {
  std::string json = "[";
  for (const auto& element : range) json += base::cat(json.size() > 1 ? "," : "", to_text(element));
  return json + "]";
}

std::string json_numbers(const auto& numbers) {
  return json_array(numbers, [](const auto& number) { return base::cat(number); });
}

std::string json_or_null(const std::optional<std::vector<int>>& numbers) {
  return numbers ? json_numbers(*numbers) : "null";
}

std::string json_bool(bool value) {
  return value ? "true" : "false";
}

std::string core_json(const shm::Core& core) {
  return base::cat("{\"package\":", core.package, ",\"cpus\":", json_numbers(core.cpus),
                   ",\"efficient\":", json_bool(core.efficient),
                   ",\"last_cache\":", core.last_cache, "}");
}

std::string node_json(const shm::Node& node) {
  return base::cat("{\"os_index\":", node.os_index, ",\"memory_bytes\":", node.memory_bytes,
                   ",\"distances\":", json_numbers(node.distances),
                   ",\"cores\":", json_array(node.cores, core_json), "}");
}

std::string rank_json(const shm::RankPlacement& rank) {
  return base::cat("{\"os_node\":", rank.os_node, ",\"cpus\":", json_numbers(rank.cpus), "}");
}

}  // namespace

std::string topology_text(const Machine& machine, const shm::Placement& placement) {
  return base::cat(shm::describe(machine.whole), "\n\n", picture(machine),
                   distances_text(machine.whole), limits_text(machine), ranks_text(placement));
}

std::string topology_json(const Machine& machine, const shm::Placement& placement) {
  return base::cat("{\"packages\":", machine.whole.packages,
                   ",\"nodes\":", json_array(machine.whole.nodes, node_json),
                   ",\"last_cache_bytes\":", json_numbers(machine.whole.last_cache_bytes),
                   ",\"allowed_cpus\":", json_or_null(machine.allowed.cpus),
                   ",\"allowed_nodes\":", json_or_null(machine.allowed.nodes),
                   ",\"cpu_quota\":", machine.cpu_quota,
                   ",\"ranks\":", json_array(placement.ranks, rank_json),
                   ",\"oversubscribed\":", json_bool(placement.oversubscribed),
                   ",\"warning\":", model::json_string(placement.note), ",\"remarks\":",
                   json_array(placement.remarks,
                              [](const std::string& text) { return model::json_string(text); }),
                   "}");
}

}  // namespace cli
