#include "shm/probe_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/cat.h"
#include "shm/file.h"
#include "shm/numa.h"
#include "shm/probe_team.h"
#include "shm/region.h"

namespace shm {

namespace {

constexpr size_t kHugeBytes = size_t{2} << 20;
constexpr int kHugeShift = 21;

std::byte* align_up(std::byte* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  return address + ((number + kHugeBytes - 1) / kHugeBytes * kHugeBytes - number);
}

}  // namespace

ProbeMemory& ProbeMemory::operator=(ProbeMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(os_node_, other.os_node_);
  std::swap(pages_, other.pages_);
  std::swap(bound_, other.bound_);
  return *this;
}

ProbeMemory::~ProbeMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

base::Result<ProbeMemory> ProbeMemory::create(const ProbeMemoryOptions& options,
                                              const std::atomic<bool>& stop) {
  CHECK(options.bytes > 0 && !options.cpus.empty(), "no memory or nobody to touch it");
  const auto fresh = [&] {
    ProbeMemory memory;
    memory.bytes_ = (options.bytes + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
    memory.os_node_ = options.os_node;
    memory.pages_ = options.pages;
    return memory;
  };
  ProbeMemory memory = fresh();
  RETURN_IF_ERROR(memory.map());
  RETURN_IF_ERROR(memory.touch(options, stop));
  if (options.pages == PageKind::kSmall || memory.as_asked()) return memory;
  // Transparent huge pages are off; the administrator may have reserved some.
  ProbeMemory reserved = fresh();
  if (!reserved.map_reserved()) return memory;
  RETURN_IF_ERROR(reserved.touch(options, stop));
  return reserved;
}

// The mapping has an unusable margin on both sides: neighbours would be merged into one line of
// /proc/self/smaps, and their pages counted together.
base::Status ProbeMemory::map() {
  mapping_bytes_ = bytes_ + 2 * kHugeBytes;
  void* const address =
      mmap(nullptr, mapping_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return base::Error{base::Code::kNoSpace,
                       base::cat("cannot map ", bytes_, " bytes to measure on; see ulimit -v")};
  }
  mapping_ = static_cast<std::byte*>(address);
  data_ = align_up(mapping_ + 1);
  if (mprotect(data_, bytes_, PROT_READ | PROT_WRITE) != 0)
    return system_error("cannot use memory", "to measure on", errno);
  madvise(data_, bytes_, pages_ == PageKind::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  ASSIGN_OR_RETURN(const Bind bind, bind_to_node(data_, bytes_, os_node_));
  bound_ = bind == Bind::kBound;
  return {};
}

// The pool may be large enough as a whole and too small on this node: then touching would be a
// SIGBUS, and asking the system to touch is an error value.
bool ProbeMemory::map_reserved() {
  void* const address =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (kHugeShift << MAP_HUGE_SHIFT), -1, 0);
  if (address == MAP_FAILED) return false;
  mapping_ = data_ = static_cast<std::byte*>(address);
  mapping_bytes_ = bytes_;
  const auto bind = bind_to_node(data_, bytes_, os_node_);
  bound_ = bind.ok() && *bind == Bind::kBound;
  return madvise(data_, bytes_, MADV_POPULATE_WRITE) == 0;
}

base::Status ProbeMemory::touch(const ProbeMemoryOptions& options, const std::atomic<bool>& stop) {
  const size_t threads = std::min(options.cpus.size(), bytes_ / kHugeBytes);
  return run_pinned(std::span(options.cpus).first(threads), [&](size_t thread) {
    const std::span<std::byte> own = part(thread, threads);
    for (size_t offset = 0; offset < own.size(); offset += kHugeBytes) {
      if (stop.load(std::memory_order_relaxed)) return;
      // Not zeros, which a virtual machine may keep as one page.
      std::memset(own.data() + offset, static_cast<int>(offset / kHugeBytes % 255) + 1,
                  std::min(kHugeBytes, own.size() - offset));
    }
  });
}

std::span<std::byte> ProbeMemory::part(size_t index, size_t count) const {
  size_t unit = kHugeBytes;
  while (unit > 64 && bytes_ / unit < count) unit /= 2;
  const size_t units = bytes_ / unit;
  const size_t begin = index * units / count * unit;
  const size_t end = (index + 1) * units / count * unit;
  return {data_ + begin, end - begin};
}

MemoryFigure ProbeMemory::figure() const {
  MemoryFigure figure = {.node = os_node_,
                         .asked = pages_,
                         .bytes = bytes_,
                         .huge_bytes = 0,
                         .page_bytes = 0,
                         .bound = bound_,
                         .verified_by = {},
                         .share_on_node = 0};
  if (const auto report = page_report(data_); report.ok()) {
    figure.huge_bytes = report->huge_bytes;
    figure.page_bytes = report->kernel_page_bytes;
    if (report->huge_bytes * 2 > bytes_) figure.page_bytes = kHugeBytes;
  }
  if (os_node_ < 0) return figure;
  constexpr size_t kPagesAsked = 65536;
  const size_t pages = bytes_ / static_cast<size_t>(sysconf(_SC_PAGESIZE));
  PageNodes nodes = page_nodes(data_, bytes_, std::max<size_t>(1, pages / kPagesAsked));
  figure.verified_by = "move_pages";
  if (!nodes.permitted) {
    nodes = mapping_nodes(data_);
    figure.verified_by = nodes.permitted && nodes.pages_asked > 0 ? "numa_maps" : "";
  }
  if (!figure.verified_by.empty()) figure.share_on_node = nodes.share_on(os_node_);
  return figure;
}

bool ProbeMemory::as_asked() const {
  const auto report = page_report(data_);
  if (!report.ok()) return pages_ == PageKind::kSmall;
  const double share =
      static_cast<double>(report->huge_bytes) / static_cast<double>(std::max<size_t>(bytes_, 1));
  return pages_ == PageKind::kHuge ? share >= 0.9 : share <= 0.1;
}

}  // namespace shm
