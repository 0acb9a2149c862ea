#include "shm/arena_users.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "shm/system_text.h"

namespace shm {

namespace {

constexpr std::string_view kDeleted = " (deleted)";

struct MapLine {
  uint64_t bytes = 0, inode = 0;
  std::string path;
};

/// "7f00-7f10 r--s 00000000 00:19 4711      /dev/shm/x"; no path: none of a file.
MapLine parse(const std::string& line) {
  unsigned long begin = 0, end = 0, inode = 0;
  int path_at = 0;
  MapLine map;
  if (std::sscanf(line.c_str(), "%lx-%lx %*s %*x %*x:%*x %lu %n", &begin, &end, &inode, &path_at) !=
          3 ||
      path_at == 0 || end < begin)
    return map;
  map.bytes = end - begin;
  map.inode = inode;
  map.path = line.substr(static_cast<size_t>(path_at));
  return map;
}

/// What one process maps below `prefix`, by (path, inode).
std::map<std::pair<std::string, uint64_t>, uint64_t> maps_of(const std::string& path,
                                                             const std::string& prefix) {
  std::map<std::pair<std::string, uint64_t>, uint64_t> bytes;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    MapLine map = parse(line);
    if (map.path.starts_with(prefix)) bytes[{std::move(map.path), map.inode}] += map.bytes;
  }
  return bytes;
}

}  // namespace

std::vector<MappedFile> mapped_files(const std::string& directory, const std::string& proc) {
  std::map<std::pair<std::string, uint64_t>, MappedFile> files;
  for (const std::string& name : names_in(proc)) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(number_of(name));
    for (const auto& [key, bytes] : maps_of(base::cat(proc, "/", name, "/maps"), directory + "/")) {
      MappedFile& file = files[key];
      file.path = key.first;
      file.inode = key.second;
      file.mapped_bytes = std::max(file.mapped_bytes, bytes);
      file.pids.push_back(pid);
    }
  }
  std::vector<MappedFile> found;
  for (auto& [key, file] : files) {
    if (file.path.ends_with(kDeleted)) {
      file.deleted = true;
      file.path.resize(file.path.size() - kDeleted.size());
    }
    std::sort(file.pids.begin(), file.pids.end());
    found.push_back(std::move(file));
  }
  return found;
}

namespace {

/// "numoe worker" of "numoe\0worker\0model.gguf\0": the name of the program alone may be "exe".
std::string command_of(const std::string& directory) {
  const std::string words = text_of(directory + "/cmdline");
  const size_t first = words.find('\0');
  if (first == std::string::npos) return {};
  const std::string second = words.substr(first + 1, words.find('\0', first + 1) - first - 1);
  const bool is_subcommand = !second.empty() && second[0] >= 'a' && second[0] <= 'z';
  return printable(base::cat(words.substr(0, first), is_subcommand ? " " + second : ""));
}

}  // namespace

std::string name_processes(const std::vector<pid_t>& pids, const std::string& proc) {
  std::string text;
  for (const pid_t pid : pids) {
    const std::string name = command_of(base::cat(proc, "/", pid));
    text += base::cat(text.empty() ? "" : ", ", "process ", pid, " (",
                      name.empty() ? "ended meanwhile" : name, ")");
  }
  return text;
}

}  // namespace shm
