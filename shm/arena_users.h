// Which processes map files of an arena directory, also files that have no name any more.
//
// Reads /proc/<pid>/maps of all processes that this user may look at. Any thread; old at once.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shm {

struct MappedFile {
  std::string path;      // as it was named when it was mapped
  bool deleted = false;  // has no name any more: the memory goes with the last process
  uint64_t inode = 0;
  uint64_t mapped_bytes = 0;  // by the process that maps most of it
  std::vector<pid_t> pids;    // ascending
};

/// The files below `directory` that somebody maps, by path. `proc` is where /proc is.
std::vector<MappedFile> mapped_files(const std::string& directory,
                                     const std::string& proc = "/proc");

/// "process 12 (numoe worker), process 13 (numoe run)"
std::string name_processes(const std::vector<pid_t>& pids, const std::string& proc = "/proc");

}  // namespace shm
