#include "shm/numa.h"

#include <numaif.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/cat.h"

namespace shm {

namespace {

constexpr int kNodesMax = 1024;

bool is_denial(int error_number) {
  return error_number == EPERM || error_number == ENOSYS || error_number == EACCES;
}

}  // namespace

base::Result<Bind> bind_to_node(void* address, size_t bytes, int node) {
  if (node < 0) return Bind::kNotAsked;
  constexpr int kBits = 8 * sizeof(unsigned long);
  unsigned long mask[kNodesMax / kBits] = {};
  if (node >= kNodesMax) {
    return base::Error{base::Code::kInvalidArgument, base::cat("there is no NUMA node ", node)};
  }
  mask[node / kBits] |= 1UL << (node % kBits);
  // The kernel reads one bit less than it is told.
  if (mbind(address, bytes, MPOL_BIND, mask, kNodesMax + 1, 0) == 0) return Bind::kBound;
  const int error_number = errno;
  if (is_denial(error_number)) return Bind::kDenied;
  return base::Error{base::Code::kInvalidArgument,
                     base::cat("cannot bind memory to NUMA node ", node, ": ",
                               std::generic_category().message(error_number),
                               "; see numactl --hardware for the nodes of this machine")};
}

namespace {

Right right_of(long result) {
  if (result == 0) return Right::kAllowed;
  if (errno == ENOSYS) return Right::kMissing;
  // Any other error is an answer to the arguments.
  return is_denial(errno) ? Right::kDenied : Right::kAllowed;
}

}  // namespace

CallRights try_calls() {
  CallRights rights;
  std::thread([&rights] {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* page =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    *static_cast<volatile char*>(page) = 1;
    rights.mbind = right_of(mbind(page, bytes, MPOL_DEFAULT, nullptr, 0, 0));
    rights.set_mempolicy = right_of(set_mempolicy(MPOL_DEFAULT, nullptr, 0));
    int mode = 0, node = 0;
    rights.get_mempolicy = right_of(get_mempolicy(&mode, nullptr, 0, nullptr, 0));
    rights.move_pages = right_of(move_pages(0, 1, &page, nullptr, &node, 0));
    munmap(page, bytes);
  }).join();
  return rights;
}

double PageNodes::share_on(int node) const {
  uint64_t present = 0;
  for (const uint64_t pages : pages_on_node) present += pages;
  if (present == 0) return 1.0;
  const auto index = static_cast<size_t>(node);
  if (node < 0 || index >= pages_on_node.size()) return 0.0;
  return static_cast<double>(pages_on_node[index]) / static_cast<double>(present);
}

bool nodes_of_pages(std::span<const std::byte* const> pages, int* nodes) {
  if (pages.empty()) return true;
  static_assert(sizeof(const std::byte*) == sizeof(void*));
  // With no target nodes move_pages moves nothing and only reports; it does not write the list.
  auto* const list = const_cast<void**>(reinterpret_cast<const void* const*>(pages.data()));
  return move_pages(0, pages.size(), list, nullptr, nodes, 0) == 0;
}

PageNodes page_nodes(const void* address, size_t bytes, size_t stride) {
  CHECK(stride >= 1, "a stride of 0 pages");
  constexpr size_t kBatch = 512;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(address) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<uintptr_t>(address) + bytes;
  PageNodes result;
  void* pages[kBatch];
  int status[kBatch];
  for (uintptr_t next = begin; next < end;) {
    size_t count = 0;
    for (; count < kBatch && next < end; next += stride * page_bytes) {
      pages[count++] = reinterpret_cast<void*>(next);
    }
    // With no target nodes move_pages moves nothing and only reports.
    if (move_pages(0, count, pages, nullptr, status, 0) != 0) {
      result = {};
      result.permitted = false;
      return result;
    }
    result.pages_asked += count;
    for (size_t i = 0; i < count; ++i) {
      const auto node = static_cast<size_t>(std::max(status[i], 0));
      if (status[i] < 0) {
        ++result.pages_absent;
        continue;
      }
      if (result.pages_on_node.size() <= node) result.pages_on_node.resize(node + 1);
      ++result.pages_on_node[node];
    }
  }
  return result;
}

// A line is "7f0000000000 bind:1 file=… dirty=… N0=12 N1=4 kernelpagesize_kB=4": the start of a
// mapping and its pages by node. Lines are in order of addresses.
PageNodes mapping_nodes(const void* address) {
  PageNodes result;
  std::FILE* maps = std::fopen("/proc/self/numa_maps", "re");
  if (maps == nullptr) {
    result.permitted = false;
    return result;
  }
  std::string found;
  char line[4096];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    if (std::strtoull(line, nullptr, 16) > reinterpret_cast<uintptr_t>(address)) break;
    found = line;
  }
  std::fclose(maps);
  std::istringstream words(found);
  for (std::string word; words >> word;) {
    unsigned node;
    unsigned long pages;
    if (std::sscanf(word.c_str(), "N%u=%lu", &node, &pages) != 2 || node >= kNodesMax) continue;
    if (result.pages_on_node.size() <= node) result.pages_on_node.resize(node + 1);
    result.pages_on_node[node] += pages;
    result.pages_asked += pages;
  }
  return result;
}

}  // namespace shm
