#include "shm/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/cat.h"

namespace shm {

File::~File() {
  if (fd_ >= 0) close(fd_);
}

base::Error system_error(std::string_view what, const std::string& path, int error_number) {
  base::Code code = base::Code::kSystem;
  if (error_number == ENOSPC) code = base::Code::kNoSpace;
  if (error_number == ENOENT) code = base::Code::kNotFound;
  if (error_number == EEXIST) code = base::Code::kUnavailable;
  return {code, base::cat(what, " ", path, ": ", std::generic_category().message(error_number))};
}

base::Result<File> open_file(const std::string& path, int flags) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return system_error("cannot open", path, errno);
  return File(fd);
}

bool try_lock(const File& file, Lock lock) {
  const int operation = (lock == Lock::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  int result;
  do {
    result = flock(file.fd(), operation);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void unlock(const File& file) {
  flock(file.fd(), LOCK_UN);
}

bool is_named(const File& file, const std::string& path) {
  struct stat of_file, of_path;
  if (fstat(file.fd(), &of_file) != 0 || of_file.st_nlink == 0) return false;
  if (lstat(path.c_str(), &of_path) != 0) return false;
  return of_file.st_dev == of_path.st_dev && of_file.st_ino == of_path.st_ino;
}

base::Result<std::string> read_text(const std::string& path) {
  constexpr size_t kMax = size_t{1} << 20;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::Error{base::Code::kNotFound, base::cat("cannot read ", path)};
  const File file(fd);
  std::string text;
  char buffer[4096];
  while (text.size() < kMax) {
    const ssize_t count = read(file.fd(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read", path, errno);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

std::pair<uint64_t, uint64_t> random_128() {
  uint64_t numbers[2] = {};
  // At most 256 bytes once the pool is ready: never short, never interrupted.
  const ssize_t count = getrandom(numbers, sizeof numbers, 0);
  CHECK(count == sizeof numbers, "the kernel gave ", count, " random bytes");
  return {numbers[0], numbers[1]};
}

}  // namespace shm
