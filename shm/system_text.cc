#include "shm/system_text.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>

#include "base/cat.h"
#include "shm/file.h"

namespace shm {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c < ' ' || c > '~') c = '?';
  return result;
}

std::string text_of(const std::string& path) {
  auto text = read_text(path);
  return text.ok() ? std::move(*text) : std::string();
}

std::string first_line(const std::string& path) {
  const std::string text = text_of(path);
  return printable(trimmed(std::string_view(text).substr(0, text.find('\n'))));
}

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

std::string chosen_word(std::string_view line) {
  const size_t open = line.find('['), close = line.find(']');
  if (open >= close || close == std::string_view::npos) return {};
  return std::string(line.substr(open + 1, close - open - 1));
}

uint64_t number_of(std::string_view text) {
  text = trimmed(text);
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

uint64_t kilobytes_of(std::string_view text, std::string_view name) {
  return number_of(field_of(text, name)) * 1024;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

// Lines of /proc/self/cgroup are "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1).
std::vector<std::string> cgroup_directories(std::string_view controller, const std::string& root) {
  std::vector<std::string> directories;
  const std::string text = text_of(base::cat(root, "/proc/self/cgroup"));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers = base::cat(",", line.substr(first + 1, second - first - 1), ",");
    std::string mount = base::cat(root, "/sys/fs/cgroup");
    if (controllers.find(base::cat(",", controller, ",")) != std::string::npos)
      mount += base::cat("/", controller);
    else if (controllers != ",,")
      continue;
    std::string group(trimmed(line.substr(second + 1)));
    if (group == "/") group.clear();
    while (true) {
      directories.push_back(mount + group);
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return directories;
}

}  // namespace shm
