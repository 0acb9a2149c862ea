#include "shm/machine_facts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "base/cat.h"
#include "shm/checksum.h"
#include "shm/file.h"

namespace shm {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// Firmware writes what it likes; reports and JSON take ASCII.
std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

std::string first_line(const std::string& path) {
  const auto text = read_text(path);
  if (!text.ok()) return {};
  const std::string_view all = *text;
  return printable(trimmed(all.substr(0, all.find('\n'))));
}

/// What follows "name" and a colon in the first line that begins so.
std::string field_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == name)
      return printable(trimmed(line.substr(colon + 1)));
  }
  return {};
}

/// "madvise" of "always [madvise] never".
std::string chosen_word(const std::string& line) {
  const size_t open = line.find('['), close = line.find(']');
  return open < close && close != std::string::npos ? line.substr(open + 1, close - open - 1) : "";
}

uint64_t number_of(std::string_view text) {
  text = trimmed(text);
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Bytes of a "Name: 12 kB" line; node files put "Node 0 " in front of the name.
uint64_t kilobytes_of(std::string_view text, const std::string& name) {
  return number_of(field_of(text, name)) * 1024;
}

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

/// The tightest limit of the cgroup in version 2 and its ancestors; a container sees its own as /.
uint64_t memory_limit(const std::string& root) {
  const auto text = read_text(base::cat(root, "/proc/self/cgroup"));
  if (!text.ok()) return 0;
  uint64_t best = 0;
  const auto look = [&](const std::string& path) {
    const uint64_t limit = number_of(first_line(path));
    // Version 1 says "no limit" with a number above every memory.
    constexpr uint64_t kNoLimit = uint64_t{1} << 60;
    if (limit > 0 && limit < kNoLimit && (best == 0 || limit < best)) best = limit;
  };
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const bool second = line.starts_with("0::");
    const size_t memory = line.find(":memory:");
    if (!second && memory == std::string_view::npos) continue;
    std::string group(second ? line.substr(3) : line.substr(memory + 8));
    if (group == "/") group.clear();
    const std::string mount = base::cat(root, "/sys/fs/cgroup", second ? "" : "/memory");
    const char* const file = second ? "/memory.max" : "/memory.limit_in_bytes";
    while (true) {
      look(base::cat(mount, group, file));
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return best;
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
  facts.memory_limit_bytes = memory_limit(root);
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
