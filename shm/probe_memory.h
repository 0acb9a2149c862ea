// Memory of one node in pages of one kind, for measuring: bound, touched, and asked where it is.
//
// Private memory of this process, aligned to huge pages, on mappings of its own so that the system
// reports its pages apart from others. Thread rule: one owner; the bytes by whoever measures.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "shm/machine_profile.h"

namespace shm {

struct ProbeMemoryOptions {
  size_t bytes = 0;  // rounded up to huge pages
  int os_node = -1;  // -1: not bound
  PageKind pages = PageKind::kSmall;
  std::vector<int> cpus;  // of the threads that touch it first; those of its node, if it has any
};

class ProbeMemory {
 public:
  /// Errors: kNoSpace; those of run_pinned() and bind_to_node(). Huge pages that are not to be had
  /// are no error: figure() tells.
  static base::Result<ProbeMemory> create(const ProbeMemoryOptions& options,
                                          const std::atomic<bool>& stop);
  ProbeMemory(ProbeMemory&& other) noexcept { *this = std::move(other); }
  ProbeMemory& operator=(ProbeMemory&& other) noexcept;
  ~ProbeMemory();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Part `index` of `count` equal ones, in whole pages as far as there are enough.
  std::span<std::byte> part(size_t index, size_t count) const;
  /// Pages and node as the system reports them.
  MemoryFigure figure() const;
  /// Whether at least nine tenths are in pages of the kind asked for.
  bool as_asked() const;

 private:
  ProbeMemory() = default;
  base::Status map();
  bool map_reserved();
  base::Status touch(const ProbeMemoryOptions& options, const std::atomic<bool>& stop);

  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;  // inside the mapping
  size_t bytes_ = 0;
  int os_node_ = -1;
  PageKind pages_ = PageKind::kSmall;
  bool bound_ = false;
};

}  // namespace shm
