#include "shm/cgroup.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/cat.h"
#include "shm/file.h"

namespace shm {

namespace {

// Above what Linux is built for (8192 CPUs, 1024 nodes), so that a list cannot take all memory.
constexpr int kNumbersMax = 8192;

std::optional<int> parse_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number < 0 || number >= kNumbersMax) return std::nullopt;
  return number;
}

/// The list behind "NAME:" in a file of lines, as in /proc/self/status.
std::optional<std::vector<int>> list_of(std::string_view status, std::string_view name) {
  const size_t at = status.find(base::cat("\n", name, ":"));
  if (at == std::string_view::npos) return std::nullopt;
  status.remove_prefix(at + name.size() + 2);
  status = status.substr(0, status.find('\n'));
  status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
  auto list = parse_number_list(status);
  if (!list.ok()) return std::nullopt;
  return std::move(*list);
}

/// The nodes that `numactl --membind` (or a parent's policy) confines this thread to. Preferred and
/// interleaved memory is a wish, no limit. Nothing also where a container denies the question.
std::optional<std::vector<int>> bound_nodes() {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  int mode = 0;
  unsigned long mask[kNumbersMax / kBits] = {};
  if (syscall(SYS_get_mempolicy, &mode, mask, sizeof mask * 8, nullptr, 0) != 0)
    return std::nullopt;
  if ((mode & ~MPOL_MODE_FLAGS) != MPOL_BIND) return std::nullopt;
  std::vector<int> nodes;
  for (size_t node = 0; node < kNumbersMax; ++node)
    if ((mask[node / kBits] >> node % kBits & 1) != 0) nodes.push_back(static_cast<int>(node));
  return nodes;
}

}  // namespace

base::Result<std::vector<int>> parse_number_list(std::string_view text) {
  std::vector<int> numbers;
  std::string_view rest = text;
  while (true) {
    const std::string_view word = rest.substr(0, rest.find(','));
    const size_t dash = word.find('-');
    const auto first = parse_number(word.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(word.substr(dash + 1));
    if (!first || !last || *first > *last)
      return base::Error{base::Code::kInvalidArgument,
                         base::cat("needs numbers and ranges below ", kNumbersMax,
                                   ", as in 0-3,8, not \"", text, "\"")};
    for (int number = *first; number <= *last; ++number) numbers.push_back(number);
    if (word.size() == rest.size()) break;
    rest.remove_prefix(word.size() + 1);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

AllowedSets read_allowed(const std::string& root) {
  AllowedSets allowed;
  if (const auto status = read_text(base::cat(root, "/proc/thread-self/status")); status.ok()) {
    allowed.cpus = list_of(*status, "Cpus_allowed_list");
    allowed.nodes = list_of(*status, "Mems_allowed_list");
  }
  const auto bound = root.empty() ? bound_nodes() : std::nullopt;
  if (!bound) return allowed;
  if (!allowed.nodes) {
    allowed.nodes = bound;
    return allowed;
  }
  std::vector<int> both;
  std::set_intersection(bound->begin(), bound->end(), allowed.nodes->begin(), allowed.nodes->end(),
                        std::back_inserter(both));
  // A cpuset that changed after the policy was set: the kernel then goes by the cpuset.
  if (!both.empty()) allowed.nodes = std::move(both);
  return allowed;
}

namespace {

/// "max 100000", "150000 100000" or two files of version 1, as CPUs; 0 for no limit or nonsense.
double parse_quota(std::string_view quota_text, std::string_view period_text) {
  double quota = 0, period = 0;
  std::from_chars(quota_text.data(), quota_text.data() + quota_text.size(), quota);
  std::from_chars(period_text.data(), period_text.data() + period_text.size(), period);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double quota_of_group(const std::string& directory) {
  if (const auto both = read_text(base::cat(directory, "/cpu.max")); both.ok()) {
    const std::string_view text = *both;
    const size_t space = std::min(text.find(' '), text.size());
    return parse_quota(text.substr(0, space), text.substr(std::min(space + 1, text.size())));
  }
  const auto quota = read_text(base::cat(directory, "/cpu.cfs_quota_us"));
  const auto period = read_text(base::cat(directory, "/cpu.cfs_period_us"));
  return quota.ok() && period.ok() ? parse_quota(*quota, *period) : 0;
}

/// The tightest limit of `group` and its ancestors below a mounted hierarchy.
double tightest(const std::string& mount, std::string group) {
  double best = 0;
  while (true) {
    const double quota = quota_of_group(base::cat(mount, group));
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return best;
    group.resize(slash);
  }
}

}  // namespace

// Lines of /proc/self/cgroup are "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1).
double read_cpu_quota(const std::string& root) {
  const auto text = read_text(base::cat(root, "/proc/self/cgroup"));
  if (!text.ok()) return 0;
  double best = 0;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = base::cat(",", line.substr(first + 1, second - first - 1), ",");
    std::string group(line.substr(second + 1));
    if (group == "/") group.clear();
    std::string mount = base::cat(root, "/sys/fs/cgroup");
    if (controllers.find(",cpu,") != std::string::npos)
      mount += "/cpu";
    else if (controllers != ",,")
      continue;
    const double quota = tightest(mount, group);
    if (quota > 0 && (best == 0 || quota < best)) best = quota;
  }
  return best;
}

}  // namespace shm
