// Binding memory to NUMA nodes and asking where its pages are. The seam to libnuma.
//
// Containers often forbid both system calls; that is an outcome here, not an error. Node numbers
// are the operating system's. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace shm {

enum class Bind {
  kNotAsked,  // no node given: pages land on the node of the thread that touches them first
  kBound,     // pages can only come from the node
  kDenied,    // the system forbids mbind: first touch by pinned threads has to do
};

/// Binds [address, address + bytes) to a node before its first touch. REQUIRES: page-aligned
/// address. Error: kInvalidArgument for a node that does not exist or has no memory.
base::Result<Bind> bind_to_node(void* address, size_t bytes, int node);

/// Whether a system call may be made: containers often forbid those about memory policies.
enum class Right { kAllowed, kDenied, kMissing };

struct CallRights {
  Right mbind = Right::kAllowed, set_mempolicy = Right::kAllowed, get_mempolicy = Right::kAllowed,
        move_pages = Right::kAllowed;
  bool operator==(const CallRights&) const = default;
};

/// Tries each of them on a throwaway page, in a thread of its own, whose policy nobody shares.
CallRights try_calls();

/// Where the pages of a range are.
struct PageNodes {
  bool permitted = true;                // false: the system does not say; all counts are 0
  std::vector<uint64_t> pages_on_node;  // [highest node seen + 1], pages of the size asked about
  uint64_t pages_absent = 0;            // never touched, or swapped out
  uint64_t pages_asked = 0;

  /// Share of the present pages on `node`, 0 … 1; 1 if none is present.
  double share_on(int node) const;
};

/// Writes the node of each page into `nodes`, negative where it is not mapped here. False: the
/// system forbids move_pages. REQUIRES: as many nodes as pages.
bool nodes_of_pages(std::span<const std::byte* const> pages, int* nodes);

/// Asks for every `stride`-th page of a range with move_pages. REQUIRES: stride >= 1.
PageNodes page_nodes(const void* address, size_t bytes, size_t stride = 1);

/// The same for the whole mapping that holds `address`, from /proc/self/numa_maps: only totals, of
/// pages that this process touched, but permitted where move_pages is not.
PageNodes mapping_nodes(const void* address);

}  // namespace shm
