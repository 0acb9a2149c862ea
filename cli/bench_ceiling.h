// How fast the compute threads' CPUs can read memory right now: what decoding is measured against.
//
// The loop of `numoe probe` on memory of this process, one part per thread, on the CPUs, nodes and
// page size of the ranks. Made once, measured before and after each test, since what neighbours of
// a machine leave of its memory changes by the minute. Thread rule: one; it starts its own threads.
#pragma once

#include <atomic>
#include <vector>

#include "base/result.h"
#include "shm/probe_memory.h"
#include "shm/topology.h"

namespace cli {

class ReadCeiling {
 public:
  /// Errors: kNoSpace, and those of pinning.
  static base::Result<ReadCeiling> create(const shm::Placement& placement, shm::PageKind pages);

  /// Median of several passes over all memory by all threads, in GB/s (1e9).
  base::Result<double> measure() const;
  /// Small pages where huge ones were asked for and not had.
  shm::PageKind pages() const { return pages_; }

 private:
  ReadCeiling() = default;

  struct Part {
    int cpu = 0;
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<shm::ProbeMemory> memory_;  // [ranks]
  std::vector<Part> parts_;               // of all threads
  shm::PageKind pages_ = shm::PageKind::kSmall;
};

}  // namespace cli
