// Reading a model's files once, without leaving a second copy of them in the page cache.
//
//   in the cache already?  -> from there, and it stays there
//   not                    -> past the cache (O_DIRECT), into a page-aligned buffer
//   no O_DIRECT here       -> through the cache, and out of it again what was not in it before
//
// What is in the cache is asked with mincore(); Linux answers it only for files that one owns or
// may write. For others single bytes are read with RWF_NOWAIT, at the ends of the range: to ask
// for more would make the kernel read it.
// Thread rule: any thread, several at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "shm/file.h"

namespace worker {

/// Bytes of one of a model's files.
struct Extent {
  int file = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
};

/// What a direct read must be a multiple of, in file and memory: no block device has larger blocks.
inline constexpr size_t kReadAlignment = 4096;

/// Memory for one read: page-aligned, and large enough for whole pages around an extent.
class ReadBuffer {
 public:
  ReadBuffer() = default;
  /// Empty if the system has no memory. The calling thread touches it first.
  static ReadBuffer for_extents_of(size_t bytes);
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

/// The seam to the files; tests inject faults here.
class ModelSource {
 public:
  enum class From { kCache, kDevice };

  virtual ~ModelSource() = default;
  /// Whether all of it is in the page cache; a guess, any answer is safe.
  virtual bool is_cached(const Extent& extent) = 0;
  /// Reads all of it; the result lies somewhere in `buffer`. kCache leaves the cache alone where
  /// is_cached() said yes. REQUIRES: a buffer for extents of this size. Errors: kSystem, or
  /// kBrokenFile when the file became shorter; the caller adds the name.
  virtual base::Result<std::span<const std::byte>> read(const Extent& extent, From from,
                                                        std::span<std::byte> buffer) = 0;
  /// Error: kNotFound or kBrokenFile if a file is not what it was when its directory was read.
  virtual base::Status check_unchanged() = 0;
};

/// How a FileSource reads what is not cached.
enum class ReadMode {
  kAuto,
  kDirect,    // everything past the cache, also what is in it
  kBuffered,  // as on a file system without O_DIRECT
};

class FileSource final : public ModelSource {
 public:
  /// Opens all files of a model. Errors as check_unchanged().
  static base::Result<std::unique_ptr<FileSource>> open(const model::Directory& directory,
                                                        ReadMode mode = ReadMode::kAuto);
  ~FileSource() override;

  bool is_cached(const Extent& extent) override;
  base::Result<std::span<const std::byte>> read(const Extent& extent, From from,
                                                std::span<std::byte> buffer) override;
  base::Status check_unchanged() override;
  /// Whether file `index` is read with O_DIRECT, as far as is known; for tests and reports.
  bool reads_direct(int index) const;

 private:
  struct OpenFile {
    model::SourceFile known;
    shm::File buffered, direct;
    std::byte* mapping = nullptr;  // never touched: what mincore() is asked about; or nullptr
    std::atomic<bool> use_direct{false};  // relaxed: whoever sees it late fails once more
  };

  explicit FileSource(ReadMode mode) : mode_(mode) {}
  base::Status open_file(const model::SourceFile& known);
  // Calls visit(first byte, bytes) for the runs of pages of an extent that are not cached.
  template <class Visit>
  void visit_missing(const OpenFile& file, const Extent& extent, const Visit& visit) const;
  base::Result<std::span<const std::byte>> read_direct(OpenFile& file, const Extent& extent,
                                                       std::span<std::byte> buffer) const;
  base::Result<std::span<const std::byte>> read_and_drop(const OpenFile& file, const Extent& extent,
                                                         std::span<std::byte> buffer) const;

  // constant after open()
  const ReadMode mode_;
  std::vector<std::unique_ptr<OpenFile>> files_;
};

}  // namespace worker
