// Which file system holds a path, from /proc/self/mountinfo. Plain values; any thread.
#pragma once

#include <optional>
#include <string>

namespace shm {

struct Mount {
  std::string point;
  std::string type;
  std::string options;  // of the file system, "rw,size=…,huge=…"
};

/// The mount that holds `path`, by the file `mounts_path`: the last of those with the longest mount
/// point.
std::optional<Mount> mount_of(const std::string& mounts_path, const std::string& path);

/// The value of "key=" among mount options; empty if it is not there.
std::string mount_option(const Mount& mount, const std::string& key);

}  // namespace shm
