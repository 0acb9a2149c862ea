// A library for LD_PRELOAD: each `numoe worker` gets an empty tmpfs of its own over the directory
// PRIVATE_MEMORY, and an IPC namespace of its own, as ranks in containers of their own have it.
//
// The directories that are there are made again, since the command that starts the workers has made
// them for all. Exit code 125 if the system does not allow it.
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;

bool is_worker() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string words((std::istreambuf_iterator<char>(file)), {});
  return words.find(std::string("\0worker\0", 8)) != std::string::npos;
}

std::vector<fs::path> directories_in(const char* place) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(place, error), end; entry != end && !error;
       entry.increment(error))
    if (entry->is_directory(error)) found.push_back(entry->path());
  return found;
}

__attribute__((constructor)) void hide_memory() {
  const char* const place = std::getenv("PRIVATE_MEMORY");
  if (place == nullptr || !is_worker()) return;
  const std::vector<fs::path> directories = directories_in(place);
  if (unshare(CLONE_NEWNS | CLONE_NEWIPC) != 0 ||
      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", place, "tmpfs", 0, "size=256m,mode=700") != 0) {
    std::perror("private_memory");
    _exit(125);
  }
  std::error_code error;
  for (const fs::path& directory : directories) {
    fs::create_directory(directory, error);
    fs::permissions(directory, fs::perms::owner_all, error);
  }
}

}  // namespace
