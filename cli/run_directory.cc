#include "cli/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/cat.h"

namespace cli {

namespace {

constexpr std::string_view kPrefix = "run-";
constexpr size_t kIdDigits = 12;

/// Opens and locks a directory that still has this name; a closed file if that cannot be now.
shm::File lock_directory(const std::string& path) {
  auto directory = shm::open_file(path, O_RDONLY | O_DIRECTORY);
  if (!directory.ok() || !shm::try_lock(*directory, shm::Lock::kExclusive) ||
      !shm::is_named(*directory, path))
    return {};
  return std::move(*directory);
}

}  // namespace

void RunDirectory::remove_leftovers(const std::string& parent) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kIdDigits) continue;
    const shm::File lock = lock_directory(entry.path());
    if (lock.is_open()) std::filesystem::remove_all(entry.path(), error);
  }
}

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
    shm::File lock = lock_directory(path);
    if (lock.is_open()) return RunDirectory(path, std::move(lock));
  }
  return base::Error{base::Code::kSystem, base::cat("no directory can be kept in ", parent)};
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

RunDirectory::~RunDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

uint64_t random_bits() {
  return shm::random_128().first;
}

std::string random_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (uint64_t bits = random_bits(); id.size() < kIdDigits; bits >>= 4) id += kDigits[bits & 15];
  return id;
}

}  // namespace cli
