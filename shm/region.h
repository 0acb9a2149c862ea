// Memory that several processes map: a named file in a directory, normally on a tmpfs. The seam to
// Boost.Interprocess.
//
// A new file is created (0600, close-on-exec), sized, bound to its node, and *reserved* before
// anybody writes, so that a full file system is an error value here and never a SIGBUS later.
// Nothing is removed by a destructor: names go by unlink_region(), memory with the last mapping.
// Thread rule: a Region may be moved and destroyed by one thread; its memory follows the rules of
// whoever lays it out.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "shm/file.h"
#include "shm/numa.h"

namespace shm {

/// What pages to ask for: --huge-pages. What came of it is in page_report().
enum class HugePages {
  kAuto,  // what the directory gives
  kOff,   // small ones
  k2M,    // of a hugetlbfs with such pages, nothing else
  k1G,
};

struct RegionOptions {
  size_t bytes = 0;    // rounded up to whole pages
  int node = -1;       // OS node, or -1: where it is first touched
  bool huge = false;   // ask for huge pages; what came of it is in page_report()
  bool small = false;  // refuse them
  /// Asked now and then while memory is reserved, which can take long; an error ends it. May be
  /// empty.
  std::function<base::Result<void>()> keep_on = {};
};

enum class Access { kReadOnly, kReadWrite };

class Region {
 public:
  /// A new file. Errors: kNoSpace with the bytes needed and free; kUnavailable if the name exists.
  static base::Result<Region> create(const std::string& path, const RegionOptions& options);
  /// The same on a file that the caller opened and locked; its old content is gone.
  static base::Result<Region> create_in(File file, const std::string& path,
                                        const RegionOptions& options);
  /// Maps an existing file. Errors: kNotFound; kBrokenFile if smaller than `bytes_min`.
  static base::Result<Region> open(const std::string& path, Access access, size_t bytes_min);
  static base::Result<Region> open_in(File file, const std::string& path, Access access,
                                      size_t bytes_min);
  /// Private memory of this process, zeroed: for ranks that are threads.
  static base::Result<Region> anonymous(size_t bytes);

  Region(Region&&) noexcept;
  Region& operator=(Region&&) noexcept;
  ~Region();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }  // empty when anonymous
  const File& file() const { return file_; }
  Bind bind() const { return bind_; }

  /// Makes the mapping read-only: a stray write becomes a fault at its place.
  base::Result<void> protect();

 private:
  struct Mapping;  // Boost's
  Region();
  base::Result<void> map(Access access);

  std::unique_ptr<Mapping> mapping_;
  File file_;
  std::string path_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Bind bind_ = Bind::kNotAsked;
};

/// Removes the name; mappings stay. True if it was there.
bool unlink_region(const std::string& path);

/// Keeps memory from being swapped out; false where the process may not lock so much.
bool lock_pages(const void* address, size_t bytes);

/// Bytes an unprivileged writer can still put into the file system of `directory`.
base::Result<uint64_t> free_bytes(const std::string& directory);

/// Pages as they are, not as they were asked for.
struct PageReport {
  size_t resident_bytes = 0;     // touched through this mapping
  size_t huge_bytes = 0;         // of these, in huge pages
  size_t kernel_page_bytes = 0;  // of the mapping: 4096, or more on a hugetlbfs
};

/// Reads /proc/self/smaps for the mapping that holds `address`.
base::Result<PageReport> page_report(const void* address);

}  // namespace shm
