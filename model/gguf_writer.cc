#include "model/gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/cat.h"
#include "base/check.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

constexpr int kTemporaryNamesMax = 100;

std::string reason(int error) {
  return std::strerror(error);
}

/// "1234 bytes" with thousands as people read them: "1.2 MB (1234 bytes)".
std::string size_text(uint64_t bytes) {
  const uint64_t tenths = bytes / 100'000;
  return cat(tenths / 10, '.', tenths % 10, " MB (", bytes, " bytes)");
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Error no_space(const std::string& path, uint64_t needed) {
  struct statvfs system;
  std::string free = "fewer";
  if (statvfs(folder_of(path).c_str(), &system) == 0)
    free = cat("only ", size_text(uint64_t{system.f_bavail} * system.f_frsize));
  return {Code::kNoSpace, cat(path, " needs ", size_text(needed), " but ", free,
                              " are free there; make room or choose another place")};
}

/// Where a file of that name really is: behind symbolic links. Errors: it exists and may not be
/// replaced.
Result<std::string> writable_path(const std::string& path, const GgufWriterOptions& options) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return path;
    return Error{Code::kSystem, cat("cannot write ", path, ": ", reason(errno))};
  }
  if (!S_ISREG(found.st_mode))
    return Error{Code::kInvalidArgument,
                 cat(path, " is not a regular file; give the name of a file to write")};
  if (!options.replace)
    return Error{Code::kInvalidArgument,
                 cat(path, " exists; choose another name, or replace it with --force")};
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  return failed ? path : real.string();
}

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::string& path, GgufLayout layout,
                                      const GgufWriterOptions& options) {
  GgufWriter writer;
  ASSIGN_OR_RETURN(writer.path_, writable_path(path, options));
  writer.layout_ = std::move(layout);
  writer.options_ = options;
  writer.written_ = std::make_unique<std::atomic<uint64_t>>(0);
  RETURN_IF_ERROR(writer.open_temporary());
  RETURN_IF_ERROR(writer.reserve());
  RETURN_IF_ERROR(writer.write_at(0, writer.layout_.header));
  return writer;
}

GgufWriter::GgufWriter(GgufWriter&& other) noexcept
    : layout_(std::move(other.layout_)),
      path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, std::string())),
      options_(other.options_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(std::move(other.written_)) {}

GgufWriter::~GgufWriter() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

Status GgufWriter::open_temporary() {
  const std::string stem = cat(path_, ".part-", getpid());
  for (int i = 0; i < kTemporaryNamesMax; i++) {
    std::string name = i == 0 ? stem : cat(stem, '-', i);
    descriptor_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) {
      temporary_path_ = std::move(name);
      return {};
    }
    if (errno != EEXIST) break;
  }
  return Error{Code::kSystem, cat("cannot create ", stem, ": ", reason(errno))};
}

Status GgufWriter::reserve() const {
  const uint64_t bytes = layout_.file_bytes;
  struct statvfs system;
  const bool known = fstatvfs(descriptor_, &system) == 0;
  if (known && uint64_t{system.f_bavail} * system.f_frsize < bytes) return no_space(path_, bytes);
  if (!std::in_range<off_t>(bytes)) return no_space(path_, bytes);
  const auto size = static_cast<off_t>(bytes);
  if (fallocate(descriptor_, 0, 0, size) == 0) return {};
  if (errno == ENOSPC || errno == EDQUOT) return no_space(path_, bytes);
  // Not every file system can reserve; there a full disk shows while writing.
  if (ftruncate(descriptor_, size) == 0) return {};
  return Error{Code::kSystem,
               cat("cannot make ", path_, " ", size_text(bytes), " large: ", reason(errno))};
}

Status GgufWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == ENOSPC || errno == EDQUOT))
      return no_space(path_, layout_.file_bytes);
    if (count <= 0) return Error{Code::kSystem, cat("cannot write ", path_, ": ", reason(errno))};
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status GgufWriter::write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) const {
  CHECK(tensor < layout_.tensors.size(), "no tensor ", tensor);
  const TensorInfo& info = layout_.tensors[tensor];
  CHECK(offset <= info.bytes && bytes.size() <= info.bytes - offset, "beyond the end of ",
        info.name);
  RETURN_IF_ERROR(write_at(info.offset + offset, bytes));
  written_->fetch_add(bytes.size(), std::memory_order_relaxed);
  return {};
}

Status GgufWriter::commit() {
  uint64_t expected = 0;
  for (const TensorInfo& tensor : layout_.tensors) expected += tensor.bytes;
  const uint64_t written = written_->load(std::memory_order_relaxed);
  CHECK(written == expected, written, " bytes of tensors were written, not ", expected);
  // Network file systems tell of a failed write only here.
  if (close(std::exchange(descriptor_, -1)) != 0)
    return Error{Code::kSystem, cat("cannot write ", path_, ": ", reason(errno))};
  const unsigned flags = options_.replace ? 0 : RENAME_NOREPLACE;
  int error = 0;
  if (renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, path_.c_str(), flags) != 0)
    error = errno;
  if (error == EINVAL || error == ENOSYS) {  // a file system without the flag
    error = access(path_.c_str(), F_OK) == 0 && !options_.replace ? EEXIST : 0;
    if (error == 0 && rename(temporary_path_.c_str(), path_.c_str()) != 0) error = errno;
  }
  if (error == EEXIST)
    return Error{Code::kInvalidArgument,
                 cat(path_, " came into being meanwhile; choose another name")};
  if (error != 0)
    return Error{Code::kSystem,
                 cat("cannot rename ", temporary_path_, " to ", path_, ": ", reason(error))};
  temporary_path_.clear();
  return {};
}

}  // namespace model
