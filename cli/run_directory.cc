#include "cli/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/cat.h"
#include "base/check.h"

namespace cli {

namespace {

constexpr std::string_view kPrefix = "run-";
constexpr size_t kIdDigits = 12;

/// Opens and locks a directory that still has this name; -1 if that cannot be now.
int lock_directory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return -1;
  struct stat held {
  }, named{};
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && fstat(descriptor, &held) == 0 &&
      lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino)
    return descriptor;
  close(descriptor);
  return -1;
}

void remove_leftovers(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kIdDigits) continue;
    const int descriptor = lock_directory(entry.path());
    if (descriptor < 0) continue;
    std::filesystem::remove_all(entry.path(), error);
    close(descriptor);
  }
}

std::string random_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (uint64_t bits = random_bits(); id.size() < kIdDigits; bits >>= 4) id += kDigits[bits & 15];
  return id;
}

}  // namespace

base::Result<RunDirectory> RunDirectory::create(const std::string& parent) {
  remove_leftovers(parent);
  // Another process may take a fresh directory for a leftover before it is locked: then the next.
  for (int attempt = 0; attempt < 100; attempt++) {
    const std::string path = base::cat(parent, "/", kPrefix, random_id());
    if (mkdir(path.c_str(), S_IRWXU) != 0) {
      if (errno == EEXIST) continue;
      return base::Error{base::Code::kSystem,
                         base::cat("creating ", path, ": ", std::strerror(errno))};
    }
    const int descriptor = lock_directory(path);
    if (descriptor >= 0) return RunDirectory(path, descriptor);
  }
  return base::Error{base::Code::kSystem, base::cat("no directory can be kept in ", parent)};
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}

RunDirectory::~RunDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  close(descriptor_);
}

uint64_t random_bits() {
  uint64_t bits = 0;
  CHECK(getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits), "getrandom");
  return bits;
}

}  // namespace cli
