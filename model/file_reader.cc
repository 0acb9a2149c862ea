#include "model/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/cat.h"

namespace model {

namespace {

base::Error system_error(base::Code code, std::string_view action, const std::string& path,
                         int number) {
  return {code,
          base::cat(path, ": cannot ", action, ": ", std::generic_category().message(number))};
}

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

base::Result<PosixFile> PosixFile::open(const std::string& path) {
  PosixFile file;
  file.source_.path = path;
  // Without O_NONBLOCK the open of a named pipe would wait for a writer.
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor_ < 0) {
    const auto code =
        errno == ENOENT || errno == ENOTDIR ? base::Code::kNotFound : base::Code::kSystem;
    return system_error(code, "open the file", path, errno);
  }
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0) {
    return system_error(base::Code::kSystem, "read the file's size", path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(path, ": is not a regular file; give the path of a GGUF file")};
  }
  file.source_.bytes = static_cast<uint64_t>(status.st_size);
  file.source_.device = status.st_dev;
  file.source_.inode = status.st_ino;
  file.source_.mtime_ns = nanoseconds(status.st_mtim);
  file.source_.ctime_ns = nanoseconds(status.st_ctim);
  return file;
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), source_(std::move(other.source_)) {}

PosixFile& PosixFile::operator=(PosixFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(source_, other.source_);
  return *this;
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

base::Status PosixFile::read(uint64_t offset, std::span<std::byte> out) {
  CHECK(offset <= size() && out.size() <= size() - offset, "read past the end of ", name());
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done,
                                  static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return base::Error{base::Code::kSystem, base::cat("cannot read the file: ",
                                                        std::generic_category().message(errno))};
    }
    if (count == 0) {
      return base::Error{base::Code::kBrokenFile, "the file became shorter while it was read"};
    }
    done += static_cast<size_t>(count);
  }
  return {};
}

base::Status MemoryFile::read(uint64_t offset, std::span<std::byte> out) {
  CHECK(offset <= size() && out.size() <= size() - offset, "read past the end of ", name());
  std::ranges::copy(bytes_.subspan(offset, out.size()), out.begin());
  return {};
}

}  // namespace model
