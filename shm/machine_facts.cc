#include "shm/machine_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "base/cat.h"
#include "shm/checksum.h"
#include "shm/file.h"
#include "shm/health_facts.h"
#include "shm/system_text.h"

namespace shm {

namespace {

uint64_t node_free_bytes(const std::string& directory, int node) {
  const auto text = read_text(base::cat(directory, "/meminfo"));
  if (!text.ok()) return 0;
  const std::string prefix = base::cat("Node ", node, " ");
  // Clean pages of files give way to those who want memory.
  return kilobytes_of(*text, prefix + "MemFree") + kilobytes_of(*text, prefix + "Inactive(file)");
}

std::vector<int> node_distances(const std::string& directory) {
  std::vector<int> distances;
  const std::string line = first_line(base::cat(directory, "/distance"));
  const char* next = line.data();
  const char* const end = next + line.size();
  for (int distance = 0; next < end; ++next) {
    const auto [after, error] = std::from_chars(next, end, distance);
    if (error != std::errc()) break;
    distances.push_back(distance);
    next = after;
  }
  return distances;
}

NodeFacts facts_of(const Node& node, const std::string& root) {
  const std::string directory = base::cat(root, "/sys/devices/system/node/node", node.os_index);
  NodeFacts facts = {.os_index = node.os_index,
                     .memory_bytes = node.memory_bytes,
                     .free_bytes = node_free_bytes(directory, node.os_index),
                     .cores = static_cast<int>(node.cores.size()),
                     .package = node.cores.empty() ? 0 : node.cores.front().package,
                     .cpus = {},
                     .distances = node_distances(directory)};
  std::vector<int> cpus;
  for (const Core& core : node.cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  facts.cpus = cpu_list(std::move(cpus));
  return facts;
}

std::vector<CacheFacts> caches_of(const Topology& topology) {
  std::vector<std::vector<int>> cpus(topology.last_cache_bytes.size());
  for (const Node& node : topology.nodes) {
    for (const Core& core : node.cores) {
      if (core.last_cache < 0) continue;
      std::vector<int>& own = cpus[static_cast<size_t>(core.last_cache)];
      own.insert(own.end(), core.cpus.begin(), core.cpus.end());
    }
  }
  std::vector<CacheFacts> caches;
  for (size_t i = 0; i < cpus.size(); ++i) {
    caches.push_back({topology.last_cache_bytes[i], cpu_list(std::move(cpus[i]))});
  }
  return caches;
}

/// "6.18" of "6.18.44-fc-v669": builds of one version measure alike.
std::string kernel_version(const std::string& release) {
  const size_t first = release.find('.');
  if (first == std::string::npos) return release;
  return release.substr(0, release.find_first_not_of("0123456789", first + 1));
}

}  // namespace

MachineFacts read_machine_facts(const Topology& topology, const std::string& root) {
  MachineFacts facts;
  if (const auto cpu = read_text(base::cat(root, "/proc/cpuinfo")); cpu.ok()) {
    facts.cpu_model = field_of(*cpu, "model name");
    facts.microcode = field_of(*cpu, "microcode");
    // A flag of x86; other processors do not say.
    if (cpu->find(" hypervisor") != std::string::npos) facts.hypervisor = "yes";
  }
  const std::string dmi = base::cat(root, "/sys/class/dmi/id/");
  facts.board = std::string(
      trimmed(base::cat(first_line(dmi + "sys_vendor"), " ", first_line(dmi + "product_name"))));
  facts.bios = first_line(dmi + "bios_version");
  facts.kernel = first_line(base::cat(root, "/proc/sys/kernel/osrelease"));
  facts.governor =
      first_line(base::cat(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  const std::string huge = base::cat(root, "/sys/kernel/mm/transparent_hugepage/");
  facts.transparent_huge_pages = chosen_word(first_line(huge + "enabled"));
  facts.shmem_huge_pages = chosen_word(first_line(huge + "shmem_enabled"));
  facts.numa_balancing = first_line(base::cat(root, "/proc/sys/kernel/numa_balancing"));
  facts.packages = topology.packages;
  facts.cpu_quota = read_cpu_quota(root);
  if (const auto memory = read_text(base::cat(root, "/proc/meminfo")); memory.ok()) {
    facts.available_bytes = kilobytes_of(*memory, "MemAvailable");
  }
  facts.memory_limit_bytes = read_memory_limit(root);
  for (const Node& node : topology.nodes) facts.nodes.push_back(facts_of(node, root));
  facts.last_caches = caches_of(topology);
  return facts;
}

std::string fingerprint_of(const MachineFacts& facts) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  std::string text = base::cat(
      "cpu ", facts.cpu_model, "\nhypervisor ", facts.hypervisor, "\nboard ", facts.board,
      "\nkernel ", kernel_version(facts.kernel), "\nquota ", facts.cpu_quota, "\npackages ",
      facts.packages, "\nthp ", facts.transparent_huge_pages, "\nshmem ", facts.shmem_huge_pages,
      "\nbalancing ", facts.numa_balancing, "\ngovernor ", facts.governor, "\n");
  for (const NodeFacts& node : facts.nodes) {
    const auto gib = std::llround(static_cast<double>(node.memory_bytes) / kGib);
    text += base::cat("node ", node.os_index, " package ", node.package, " cores ", node.cores,
                      " cpus ", node.cpus, " gib ", gib, "\n");
  }
  for (const CacheFacts& cache : facts.last_caches) {
    text += base::cat("cache ", cache.bytes, " cpus ", cache.cpus, "\n");
  }
  const uint64_t hash = hash64(std::as_bytes(std::span(text)));
  constexpr char kDigits[] = "0123456789abcdef";
  std::string digits(16, '0');
  for (size_t i = 0; i < 16; ++i) digits[i] = kDigits[hash >> (60 - 4 * i) & 15];
  return digits;
}

std::string cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += base::cat(cpus[i]);
    if (last > i) text += base::cat('-', cpus[last]);
    i = last + 1;
  }
  return text;
}

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  const bool even = samples.size() % 2 == 0;
  return {.median = even ? (samples[middle - 1] + samples[middle]) / 2 : samples[middle],
          .min = samples.front(),
          .max = samples.back(),
          .samples = static_cast<int>(samples.size())};
}

}  // namespace shm
