// Small wrappers over files: a descriptor that closes itself, locks that die with their process,
// and errors that name the path. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace shm {

/// Owns a file descriptor. All descriptors of this folder are close-on-exec.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// An Error made of `what`, the path, and what errno means. kNoSpace for ENOSPC, kNotFound for
/// ENOENT, kUnavailable for EEXIST, else kSystem.
base::Error system_error(std::string_view what, const std::string& path, int error_number);

/// open(2) with O_CLOEXEC | O_NOFOLLOW and mode 0600.
base::Result<File> open_file(const std::string& path, int flags);

enum class Lock { kShared, kExclusive };
/// Takes a flock without waiting: true if taken, false if somebody else holds it. Belongs to the
/// open file description: a process that forks shares it with its child until both close it.
bool try_lock(const File& file, Lock lock);
void unlock(const File& file);

/// Whether `path` still names the open `file`: false once it was removed or replaced.
bool is_named(const File& file, const std::string& path);

/// The whole file as text, at most 1 MiB; kNotFound when it cannot be opened.
base::Result<std::string> read_text(const std::string& path);

/// Two random 64-bit numbers from the kernel.
std::pair<uint64_t, uint64_t> random_128();

}  // namespace shm
