#include "worker/source_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/cat.h"

namespace worker {

namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

uint64_t page_floor(uint64_t offset) {
  return offset / kPage * kPage;
}
uint64_t page_ceil(uint64_t offset) {
  return page_floor(offset + kPage - 1);
}

base::Error read_error(int number) {
  return {base::Code::kSystem, std::generic_category().message(number)};
}
base::Error shorter() {
  return {base::Code::kBrokenFile, "the file became shorter"};
}

/// Fills `out` from `offset` on.
base::Status read_buffered(int fd, uint64_t offset, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return read_error(errno);
    if (got == 0) return shorter();
    done += static_cast<size_t>(got);
  }
  return {};
}

/// Whether mincore() tells the truth about a file: it says "all there" to anybody else.
bool may_ask_cache(const std::string& path, const struct stat& status) {
  return status.st_uid == geteuid() || faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

/// Whether one byte can be had without waiting for a device.
bool has_byte(int fd, uint64_t offset) {
  std::byte byte;
  const iovec part = {.iov_base = &byte, .iov_len = 1};
  return preadv2(fd, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

}  // namespace

ReadBuffer ReadBuffer::for_extents_of(size_t bytes) {
  ReadBuffer buffer;
  const size_t needed = page_ceil(bytes) + 2 * kReadAlignment;
  // In one huge page a device gets one address instead of hundreds: direct reads are faster.
  const size_t unit = needed > kHugePage / 4 ? kHugePage : kReadAlignment;
  const size_t size = (needed + unit - 1) / unit * unit;
  buffer.data_.reset(static_cast<std::byte*>(std::aligned_alloc(unit, size)));
  if (buffer.data_ != nullptr) {
    if (unit == kHugePage) madvise(buffer.data_.get(), size, MADV_HUGEPAGE);
    std::memset(buffer.data_.get(), 0, size);
    buffer.size_ = size;
  }
  return buffer;
}

base::Result<std::unique_ptr<FileSource>> FileSource::open(const model::Directory& directory,
                                                           ReadMode mode) {
  std::unique_ptr<FileSource> source(new FileSource(mode));
  for (const model::SourceFile& file : directory.files) {
    RETURN_IF_ERROR(source->open_file(file));
  }
  RETURN_IF_ERROR(source->check_unchanged());
  return source;
}

base::Status FileSource::open_file(const model::SourceFile& known) {
  auto file = std::make_unique<OpenFile>();
  file->known = known;
  const char* path = known.path.c_str();
  // Without O_NONBLOCK the open of a pipe, should it have taken that name, would wait for ever.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  file->buffered = shm::File(::open(path, kFlags));
  struct stat status = {};
  if (!file->buffered.is_open() || fstat(file->buffered.fd(), &status) != 0) {
    return base::Error{base::Code::kNotFound, base::cat("cannot open ", known.path, ": ",
                                                        std::generic_category().message(errno))};
  }
  // The kernel shall read what it is asked for and nothing beyond.
  posix_fadvise(file->buffered.fd(), 0, 0, POSIX_FADV_RANDOM);
  if (mode_ != ReadMode::kBuffered) {
    file->direct = shm::File(::open(path, kFlags | O_DIRECT));
    file->use_direct = file->direct.is_open();
  }
  if (known.bytes > 0 && may_ask_cache(known.path, status)) {
    void* mapping = mmap(nullptr, known.bytes, PROT_READ, MAP_SHARED, file->buffered.fd(), 0);
    if (mapping != MAP_FAILED) file->mapping = static_cast<std::byte*>(mapping);
  }
  files_.push_back(std::move(file));
  return {};
}

FileSource::~FileSource() {
  for (const auto& file : files_) {
    if (file->mapping != nullptr) munmap(file->mapping, file->known.bytes);
  }
}

base::Status FileSource::check_unchanged() {
  for (const auto& file : files_) {
    const model::SourceFile& known = file->known;
    struct stat status = {};
    if (fstat(file->buffered.fd(), &status) != 0) {
      return base::Error{base::Code::kNotFound, base::cat("cannot look at ", known.path, ": ",
                                                          std::generic_category().message(errno))};
    }
    const int64_t mtime = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
    if (static_cast<uint64_t>(status.st_size) != known.bytes || status.st_ino != known.inode ||
        mtime != known.mtime_ns) {
      return base::Error{
          base::Code::kBrokenFile,
          base::cat(known.path, " was changed while it was being loaded; start again")};
    }
  }
  return {};
}

bool FileSource::reads_direct(int index) const {
  return files_[static_cast<size_t>(index)]->use_direct.load(std::memory_order_relaxed);
}

template <class Visit>
void FileSource::visit_missing(const OpenFile& file, const Extent& extent,
                               const Visit& visit) const {
  constexpr uint64_t kPages = 256;
  unsigned char resident[kPages];
  const uint64_t end = page_ceil(std::min(extent.offset + extent.bytes, file.known.bytes));
  for (uint64_t at = page_floor(extent.offset); at < end;) {
    const uint64_t pages = std::min(kPages, (end - at) / kPage);
    if (mincore(file.mapping + at, pages * kPage, resident) != 0) std::ranges::fill(resident, 0);
    for (uint64_t i = 0; i < pages;) {
      const bool missing = (resident[i] & 1) == 0;
      const uint64_t first = i;
      while (i < pages && ((resident[i] & 1) == 0) == missing) i++;
      if (missing) visit(at + first * kPage, (i - first) * kPage);
    }
    at += pages * kPage;
  }
}

bool FileSource::is_cached(const Extent& extent) {
  const OpenFile& file = *files_[static_cast<size_t>(extent.file)];
  if (mode_ == ReadMode::kDirect && file.use_direct.load(std::memory_order_relaxed)) return false;
  if (extent.bytes == 0) return true;
  if (file.mapping == nullptr) {
    return has_byte(file.buffered.fd(), extent.offset) &&
           has_byte(file.buffered.fd(), extent.offset + extent.bytes - 1) &&
           has_byte(file.buffered.fd(), extent.offset + extent.bytes / 2);
  }
  bool cached = true;
  visit_missing(file, extent, [&](uint64_t, uint64_t) { cached = false; });
  return cached;
}

base::Result<std::span<const std::byte>> FileSource::read(const Extent& extent, From from,
                                                          std::span<std::byte> buffer) {
  OpenFile& file = *files_[static_cast<size_t>(extent.file)];
  if (from == From::kCache) {
    const std::span<std::byte> out = buffer.first(extent.bytes);
    RETURN_IF_ERROR(read_buffered(file.buffered.fd(), extent.offset, out));
    return std::span<const std::byte>(out);
  }
  if (file.use_direct.load(std::memory_order_relaxed)) {
    auto direct = read_direct(file, extent, buffer);
    // Some file systems take the flag and refuse the read.
    if (direct.ok() || direct.error().code != base::Code::kUnsupported) return direct;
    file.use_direct.store(false, std::memory_order_relaxed);
  }
  return read_and_drop(file, extent, buffer);
}

base::Result<std::span<const std::byte>> FileSource::read_direct(
    OpenFile& file, const Extent& extent, std::span<std::byte> buffer) const {
  const uint64_t begin = page_floor(extent.offset);
  const size_t lead = extent.offset - begin;
  const size_t wanted = lead + extent.bytes;
  const size_t bytes = page_ceil(wanted);
  CHECK(bytes <= buffer.size(), "a buffer too small for ", extent.bytes, " bytes");
  for (size_t done = 0; done < wanted;) {
    const ssize_t got = pread(file.direct.fd(), buffer.data() + done, bytes - done,
                              static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
      return base::Error{base::Code::kUnsupported, "no direct reads"};
    }
    if (got < 0) return read_error(errno);
    // Less than a page is what the end of the file gives.
    const size_t more = done + static_cast<size_t>(got) >= wanted
                            ? static_cast<size_t>(got)
                            : page_floor(static_cast<uint64_t>(got));
    if (more == 0) return shorter();
    done += more;
  }
  // Probing may have asked for a page; by now it has come.
  if (file.mapping == nullptr) {
    posix_fadvise(file.buffered.fd(), static_cast<off_t>(begin), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
  }
  return std::span<const std::byte>(buffer.subspan(lead, extent.bytes));
}

base::Result<std::span<const std::byte>> FileSource::read_and_drop(
    const OpenFile& file, const Extent& extent, std::span<std::byte> buffer) const {
  const auto drop = [&](uint64_t offset, uint64_t bytes) {
    posix_fadvise(file.buffered.fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
  };
  const uint64_t begin = page_floor(extent.offset);
  std::vector<std::pair<uint64_t, uint64_t>> missing;
  if (file.mapping != nullptr) {
    visit_missing(file, extent,
                  [&](uint64_t at, uint64_t bytes) { missing.emplace_back(at, bytes); });
  } else {
    missing.emplace_back(begin, page_ceil(extent.offset + extent.bytes) - begin);
  }
  const std::span<std::byte> out = buffer.first(extent.bytes);
  RETURN_IF_ERROR(read_buffered(file.buffered.fd(), extent.offset, out));
  for (const auto& [at, bytes] : missing) drop(at, bytes);
  // The pages at the ends are shared with neighbours, who may have read them meanwhile.
  if (!missing.empty()) {
    drop(begin, kPage);
    drop(page_floor(extent.offset + extent.bytes - 1), kPage);
  }
  return std::span<const std::byte>(out);
}

}  // namespace worker
