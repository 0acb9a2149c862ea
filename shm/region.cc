#include "shm/region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/anonymous_shared_memory.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <cstdio>

#include "base/cat.h"

namespace shm {

namespace ipc = boost::interprocess;

namespace {

/// Lets Boost map a descriptor that we opened: its own file_mapping is not close-on-exec, and the
/// lock must be on the very file that is mapped.
class DescriptorMapping {
 public:
  DescriptorMapping(int fd, ipc::mode_t mode) : fd_(fd), mode_(mode) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  ipc::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  ipc::mode_t mode_;
};

constexpr size_t kSmallPagesMax = size_t{64} << 10;  // of any architecture

/// What the size of a file must be a multiple of: its page, which is large on a hugetlbfs.
size_t unit_of(const File& file) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  struct statfs status;
  if (fstatfs(file.fd(), &status) != 0 || status.f_type != HUGETLBFS_MAGIC) return page;
  return std::max(page, static_cast<size_t>(status.f_bsize));
}

/// The directory part of a path, "." if none.
std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

base::Error no_space(const std::string& path, size_t bytes) {
  const auto free = free_bytes(parent_of(path));
  return {base::Code::kNoSpace,
          base::cat("cannot reserve ", bytes, " bytes for ", path, ": ",
                    free.ok() ? base::cat(*free, " bytes are free") : std::string("it is full"),
                    "; mount a larger tmpfs (see deploy/README.md), name another directory with "
                    "--arena-dir, or remove what is left over there")};
}

/// Reserves every page in pieces: one call for hundreds of gigabytes would be undone by any signal,
/// and nobody would hear anything of this process meanwhile.
base::Result<void> reserve(const File& file, const std::string& path, size_t bytes,
                           const std::function<base::Result<void>()>& keep_on) {
  constexpr size_t kPiece = size_t{1} << 28;
  for (size_t offset = 0; offset < bytes;) {
    if (keep_on) RETURN_IF_ERROR(keep_on());
    const size_t piece = std::min(kPiece, bytes - offset);
    if (fallocate(file.fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(piece)) == 0) {
      offset += piece;
    } else if (errno == ENOSPC) {
      return no_space(path, bytes);
    } else if (errno != EINTR) {
      return system_error("cannot reserve memory (a tmpfs can) for", path, errno);
    }
  }
  return {};
}

}  // namespace

struct Region::Mapping {
  ipc::mapped_region region;
};

Region::Region() = default;
Region::Region(Region&&) noexcept = default;
Region& Region::operator=(Region&&) noexcept = default;
Region::~Region() = default;

base::Result<void> Region::map(Access access) {
  const ipc::mode_t mode = access == Access::kReadOnly ? ipc::read_only : ipc::read_write;
  try {
    mapping_ = std::make_unique<Mapping>();
    mapping_->region = ipc::mapped_region(DescriptorMapping(file_.fd(), mode), mode, 0, bytes_);
  } catch (const ipc::interprocess_exception& error) {
    // A hugetlbfs counts its pages when they are mapped.
    if (error.get_native_error() == ENOMEM && unit_of(file_) > kSmallPagesMax)
      return no_space(path_, bytes_);
    return base::Error{base::Code::kSystem,
                       base::cat("cannot map ", bytes_, " bytes of ", path_, ": ", error.what())};
  }
  data_ = static_cast<std::byte*>(mapping_->region.get_address());
  // Weights and activations in a core file help nobody; not supported everywhere, and harmless.
  madvise(data_, bytes_, MADV_DONTDUMP);
  return {};
}

base::Result<Region> Region::create(const std::string& path, const RegionOptions& options) {
  ASSIGN_OR_RETURN(File file, open_file(path, O_RDWR | O_CREAT | O_EXCL));
  auto region = create_in(std::move(file), path, options);
  if (!region.ok()) unlink_region(path);
  return region;
}

// The order matters: the size is known before huge pages are chosen (huge=within_size looks at it),
// and the policy is on the file before the first page is taken.
base::Result<Region> Region::create_in(File file, const std::string& path,
                                       const RegionOptions& options) {
  CHECK(options.bytes > 0, "a region of no bytes");
  const size_t unit = unit_of(file);
  Region region;
  region.file_ = std::move(file);
  region.path_ = path;
  region.bytes_ = (options.bytes + unit - 1) / unit * unit;
  if (ftruncate(region.file_.fd(), 0) != 0 ||
      ftruncate(region.file_.fd(), static_cast<off_t>(region.bytes_)) != 0) {
    return system_error("cannot size", path, errno);
  }
  RETURN_IF_ERROR(region.map(Access::kReadWrite));
  ASSIGN_OR_RETURN(region.bind_, bind_to_node(region.data_, region.bytes_, options.node));
  if (options.huge) madvise(region.data_, region.bytes_, MADV_HUGEPAGE);
  if (options.small) madvise(region.data_, region.bytes_, MADV_NOHUGEPAGE);
  RETURN_IF_ERROR(reserve(region.file_, path, region.bytes_, options.keep_on));
  return region;
}

base::Result<Region> Region::open(const std::string& path, Access access, size_t bytes_min) {
  ASSIGN_OR_RETURN(File file, open_file(path, access == Access::kReadOnly ? O_RDONLY : O_RDWR));
  return open_in(std::move(file), path, access, bytes_min);
}

base::Result<Region> Region::open_in(File file, const std::string& path, Access access,
                                     size_t bytes_min) {
  struct stat status;
  if (fstat(file.fd(), &status) != 0) return system_error("cannot look at", path, errno);
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes == 0 || bytes < bytes_min) {
    return base::Error{base::Code::kBrokenFile, base::cat(path, " has ", bytes, " bytes, at least ",
                                                          bytes_min, " are needed; remove it")};
  }
  Region region;
  region.file_ = std::move(file);
  region.path_ = path;
  region.bytes_ = bytes;
  RETURN_IF_ERROR(region.map(access));
  return region;
}

base::Result<Region> Region::anonymous(size_t bytes) {
  CHECK(bytes > 0, "a region of no bytes");
  Region region;
  region.bytes_ = bytes;
  try {
    region.mapping_ = std::make_unique<Mapping>();
    region.mapping_->region = ipc::anonymous_shared_memory(bytes);
  } catch (const ipc::interprocess_exception& error) {
    return base::Error{base::Code::kNoSpace,
                       base::cat("cannot map ", bytes, " bytes of memory: ", error.what())};
  }
  region.data_ = static_cast<std::byte*>(region.mapping_->region.get_address());
  return region;
}

base::Result<void> Region::protect() {
  if (mprotect(data_, bytes_, PROT_READ) != 0) {
    return system_error("cannot make read-only", path_, errno);
  }
  return {};
}

bool unlink_region(const std::string& path) {
  return unlink(path.c_str()) == 0;
}

bool lock_pages(const void* address, size_t bytes) {
  return mlock(address, bytes) == 0;
}

base::Result<uint64_t> free_bytes(const std::string& directory) {
  struct statvfs status;
  if (statvfs(directory.c_str(), &status) != 0) {
    return system_error("cannot ask for the free space of", directory, errno);
  }
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

base::Result<PageReport> page_report(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::FILE* smaps = std::fopen("/proc/self/smaps", "re");
  if (smaps == nullptr) return system_error("cannot read", "/proc/self/smaps", errno);
  PageReport report;
  bool inside = false, found = false;
  char line[512];
  while (std::fgets(line, sizeof line, smaps) != nullptr) {
    unsigned long begin, end;
    char mode[8], field[64];
    unsigned long kilobytes;
    if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, mode) == 3) {
      if (found) break;
      inside = begin <= wanted && wanted < end;
      found = inside;
    } else if (inside && std::sscanf(line, "%63[A-Za-z_]: %lu kB", field, &kilobytes) == 2) {
      const std::string name(field);
      if (name == "Rss") report.resident_bytes = kilobytes * 1024;
      if (name == "KernelPageSize") report.kernel_page_bytes = kilobytes * 1024;
      if (name == "ShmemPmdMapped" || name == "FilePmdMapped" || name == "AnonHugePages" ||
          name == "Shared_Hugetlb" || name == "Private_Hugetlb") {
        report.huge_bytes += kilobytes * 1024;
      }
    }
  }
  std::fclose(smaps);
  if (!found) {
    return base::Error{base::Code::kNotFound, "no mapping of this process holds that address"};
  }
  return report;
}

}  // namespace shm
