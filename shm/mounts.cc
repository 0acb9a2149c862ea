#include "shm/mounts.h"

#include <cstdlib>
#include <sstream>

#include "shm/file.h"

namespace shm {

namespace {

/// mountinfo writes space, tab, newline and backslash as octal.
std::string unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_below(const std::string& path, const std::string& point) {
  if (point == "/") return true;
  return path.starts_with(point) && (path.size() == point.size() || path[point.size()] == '/');
}

}  // namespace

std::optional<Mount> mount_of(const std::string& mounts_path, const std::string& path) {
  const auto text = read_text(mounts_path);
  if (!text.ok()) return {};
  std::optional<Mount> best;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 /root /point rw,noatime shared:1 - tmpfs source rw,size=…"
    std::istringstream words(line);
    std::string word, source;
    Mount mount;
    for (int i = 0; i < 5; ++i) words >> mount.point;
    while (words >> word && word != "-") {
    }
    if (!(words >> mount.type >> source >> mount.options)) continue;
    mount.point = unescape(mount.point);
    if (!is_below(path, mount.point)) continue;
    if (!best.has_value() || mount.point.size() >= best->point.size()) best = std::move(mount);
  }
  return best;
}

std::string mount_option(const Mount& mount, const std::string& key) {
  std::istringstream options(mount.options);
  for (std::string option; std::getline(options, option, ',');) {
    if (option.starts_with(key + "=")) return option.substr(key.size() + 1);
  }
  return {};
}

}  // namespace shm
