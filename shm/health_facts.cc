#include "shm/health_facts.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include "base/cat.h"
#include "shm/cgroup.h"
#include "shm/system_text.h"

namespace shm {

namespace {

constexpr char kHugeDirectory[] = "/sys/kernel/mm/transparent_hugepage/";

void read_machine(const Topology& topology, const std::string& root, HealthFacts& facts) {
  for (const Node& node : topology.nodes) {
    facts.cores += static_cast<int>(node.cores.size());
    facts.memory_nodes += node.memory_bytes > 0 ? 1 : 0;
  }
  facts.nodes = static_cast<int>(topology.nodes.size());
  const std::string status = text_of(root + "/proc/self/status");
  facts.cpus_allowed = field_of(status, "Cpus_allowed_list");
  facts.nodes_allowed = field_of(status, "Mems_allowed_list");
  facts.cpus_online = first_line(root + "/sys/devices/system/cpu/online");
  facts.nodes_online = first_line(root + "/sys/devices/system/node/has_memory");
  const std::string cpus = root + "/sys/devices/system/cpu/";
  std::map<std::string, int> governors;
  for (const std::string& name : names_in(cpus)) {
    if (!name.starts_with("cpu") || name.find_first_not_of("0123456789", 3) != std::string::npos)
      continue;
    const std::string governor = first_line(cpus + name + "/cpufreq/scaling_governor");
    if (!governor.empty()) governors[governor]++;
  }
  facts.governors.assign(governors.begin(), governors.end());
  facts.frequency_driver = first_line(cpus + "cpu0/cpufreq/scaling_driver");
}

void read_pools(const std::string& root, HealthFacts& facts) {
  const std::string nodes = root + "/sys/devices/system/node/";
  for (const std::string& name : names_in(nodes)) {
    if (!name.starts_with("node") || name.size() < 5 || name[4] < '0' || name[4] > '9') continue;
    const std::string pools = nodes + name + "/hugepages/";
    for (const std::string& pool : names_in(pools)) {
      constexpr std::string_view kPrefix = "hugepages-";
      if (!pool.starts_with(kPrefix)) continue;
      const uint64_t pages = number_of(first_line(pools + pool + "/nr_hugepages"));
      if (pages == 0) continue;
      facts.huge_pools.push_back(
          {.node = static_cast<int>(number_of(name.substr(4))),
           .page_bytes = number_of(pool.substr(kPrefix.size())) * 1024,
           .pages = pages,
           .free_pages = number_of(first_line(pools + pool + "/free_hugepages"))});
    }
  }
}

void read_settings(const std::string& root, HealthFacts& facts) {
  const std::string settings = root + "/proc/sys/";
  facts.numa_balancing = first_line(settings + "kernel/numa_balancing");
  facts.zone_reclaim_mode = first_line(settings + "vm/zone_reclaim_mode");
  facts.overcommit_memory = first_line(settings + "vm/overcommit_memory");
  facts.swappiness = first_line(settings + "vm/swappiness");
  facts.max_map_count = first_line(settings + "vm/max_map_count");
  facts.transparent_huge_pages = chosen_word(first_line(root + kHugeDirectory + "enabled"));
  facts.shmem_enabled = chosen_word(first_line(root + kHugeDirectory + "shmem_enabled"));
  read_pools(root, facts);
  const std::string memory = text_of(root + "/proc/meminfo");
  facts.memory_bytes = kilobytes_of(memory, "MemTotal");
  facts.available_bytes = kilobytes_of(memory, "MemAvailable");
  facts.swap_bytes = kilobytes_of(memory, "SwapTotal");
  facts.swap_free_bytes = kilobytes_of(memory, "SwapFree");
}

/// The value behind "name " at the start of a line.
uint64_t counter_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ')
      return number_of(line.substr(name.size()));
  }
  return 0;
}

std::string container_sign(const std::string& root) {
  for (const char* const file : {"/.dockerenv", "/run/.containerenv"}) {
    const std::string path = root + file;
    struct statvfs ignored;
    if (statvfs(path.c_str(), &ignored) == 0) return file;
  }
  const std::string named = first_line(root + "/run/systemd/container");
  if (!named.empty()) return base::cat("/run/systemd/container says ", named);
  const std::string groups = text_of(root + "/proc/self/cgroup");
  for (const char* const word : {"docker", "kubepods", "containerd", "libpod", "lxc"})
    if (groups.find(word) != std::string::npos) return base::cat("/proc/self/cgroup names ", word);
  return {};
}

/// "Max locked memory  65536  65536  bytes" of /proc/self/limits: the soft limit.
std::optional<uint64_t> read_memlock(const std::string& root) {
  std::istringstream lines(text_of(root + "/proc/self/limits"));
  constexpr std::string_view kName = "Max locked memory";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kName)) continue;
    const std::string_view rest = trimmed(std::string_view(line).substr(kName.size()));
    if (rest.starts_with("unlimited")) return {};
    return number_of(rest);
  }
  return {};
}

void read_limits(const HealthOptions& options, HealthFacts& facts) {
  facts.memlock_bytes = read_memlock(options.root);
  facts.cpu_quota = read_cpu_quota(options.root);
  for (const std::string& group : cgroup_directories("cpu", options.root)) {
    const std::string stat = text_of(group + "/cpu.stat");
    const uint64_t throttled = counter_of(stat, "nr_throttled");
    if (throttled <= facts.throttled) continue;
    facts.throttled = throttled;
    facts.periods = counter_of(stat, "nr_periods");
  }
  facts.memory_limit_bytes = read_memory_limit(options.root);
  facts.container = container_sign(options.root);
  facts.rights = options.rights ? *options.rights : try_calls();
}

void read_arena(const HealthOptions& options, HealthFacts& facts) {
  ArenaDirOptions where;
  if (options.arena_dir) where = *options.arena_dir;
  where.directory = options.arena_directory;
  auto arena = choose_arena_dir(where);
  if (arena.ok()) {
    facts.arena_in_dev_shm = arena->directory.starts_with(where.shm_directory + "/");
    facts.arena = std::move(*arena);
  } else {
    facts.arena_error = arena.error().message;
  }
  std::vector<std::string> paths = {where.run_directory, where.shm_directory};
  if (!where.directory.empty()) paths = {where.directory};
  for (const std::string& path : paths) {
    const auto mount = mount_of(where.mounts, path);
    struct statvfs space;
    if (!mount || statvfs(path.c_str(), &space) != 0) continue;
    // A directory that nothing is mounted on is no place of its own.
    if (where.directory.empty() && mount->point != path) continue;
    facts.places.push_back({.path = path,
                            .mount = *mount,
                            .total_bytes = static_cast<uint64_t>(space.f_blocks) * space.f_frsize,
                            .free_bytes = static_cast<uint64_t>(space.f_bavail) * space.f_frsize});
  }
}

bool says_yes(std::string_view value) {
  for (const char* const word : {"1", "yes", "y", "true", "t", "on"})
    if (value == word) return true;
  return false;
}

/// The last "RemoveIPC=" of a file, if there is one.
void read_remove_ipc(const std::string& root, const std::string& file, HealthFacts& facts) {
  std::istringstream lines(text_of(root + file));
  for (std::string line; std::getline(lines, line);) {
    const std::string_view text = trimmed(line);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || trimmed(text.substr(0, equals)) != "RemoveIPC")
      continue;
    facts.remove_ipc = says_yes(trimmed(text.substr(equals + 1)));
    facts.remove_ipc_file = file;
  }
}

void read_logind(const HealthOptions& options, HealthFacts& facts) {
  const std::string& root = options.root;
  struct statvfs ignored;
  facts.logind = statvfs((root + "/run/systemd/system").c_str(), &ignored) == 0;
  facts.uid = options.uid;
  std::istringstream users(text_of(root + "/etc/passwd"));
  for (std::string line; std::getline(users, line);) {
    // "name:x:1000:…"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line[second + 1] < '0' || line[second + 1] > '9') continue;
    if (number_of(line.substr(second + 1)) == options.uid) facts.user = line.substr(0, first);
  }
  facts.lingers = !facts.user.empty() &&
                  statvfs((root + "/var/lib/systemd/linger/" + facts.user).c_str(), &ignored) == 0;
  // Of each name the first directory counts; of all names the last in alphabetical order.
  constexpr const char* kDirectories[] = {"/etc", "/run", "/usr/local/lib", "/usr/lib"};
  std::map<std::string, std::string> files;
  bool has_main = false;
  for (const char* const directory : kDirectories) {
    const std::string main = base::cat(directory, "/systemd/logind.conf");
    if (!has_main && !text_of(root + main).empty()) {
      has_main = true;
      read_remove_ipc(root, main, facts);
    }
    const std::string drop_ins = main + ".d/";
    for (const std::string& name : names_in(root + drop_ins))
      if (name.ends_with(".conf")) files.emplace(name, drop_ins + name);
  }
  for (const auto& [name, file] : files) read_remove_ipc(root, file, facts);
}

}  // namespace

uint64_t read_memory_limit(const std::string& root) {
  uint64_t best = 0;
  for (const std::string& group : cgroup_directories("memory", root)) {
    for (const char* const file : {"/memory.max", "/memory.limit_in_bytes"}) {
      const uint64_t limit = number_of(first_line(group + file));
      // Version 1 says "no limit" with a number above every memory.
      constexpr uint64_t kNoLimit = uint64_t{1} << 60;
      if (limit > 0 && limit < kNoLimit && (best == 0 || limit < best)) best = limit;
    }
  }
  return best;
}

HealthFacts read_health_facts(const Topology& topology, const HealthOptions& options) {
  HealthFacts facts;
  read_machine(topology, options.root, facts);
  read_settings(options.root, facts);
  read_limits(options, facts);
  read_arena(options, facts);
  read_logind(options, facts);
  return facts;
}

}  // namespace shm
