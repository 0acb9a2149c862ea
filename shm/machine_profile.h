// What a machine can do, as measured by shm/probe.h: plain values, for planning, saving and people.
//
// Units are in the names: GB/s are 1e9 bytes a second, ns one way. Nodes are named by their OS
// index, CPUs too. docs/probe.md explains every field. Includes nothing of this folder, so that a
// planner may include it. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shm {

/// The version of these structs when saved: raised when a field changes its meaning or goes.
inline constexpr int kMachineProfileVersion = 2;

/// Samples of one quantity on a machine that others use too.
struct Spread {
  double median = 0, min = 0, max = 0;
  int samples = 0;  // 0: not measured, and the rest says nothing
};

/// Median (of an even number: the mean of the middle two), least and largest.
Spread spread_of(std::vector<double> samples);

struct NodeFacts {
  int os_index = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;     // when measured; 0: unknown
  int cores = 0;               // 0: memory only
  int package = 0;             // socket of its first core
  std::string cpus;            // allowed OS CPUs, "0-3,8"
  std::vector<int> distances;  // as the firmware says, to the nodes in their order; may be empty
};

struct CacheFacts {
  uint64_t bytes = 0;
  std::string cpus;  // those that share it
};

/// Settings and hardware; a text is empty where the system does not say.
struct MachineFacts {
  std::string cpu_model, microcode, hypervisor;
  std::string board;   // vendor and product
  std::string bios;    // version
  std::string kernel;  // release
  std::string governor;
  std::string transparent_huge_pages, shmem_huge_pages;  // the chosen word
  std::string numa_balancing;                            // "0": off
  std::string arena_file_system;                         // where weights would lie
  int packages = 0;
  double cpu_quota = 0;             // CPUs of time the cgroup grants; 0: no limit
  uint64_t available_bytes = 0;     // of memory, when measured
  uint64_t memory_limit_bytes = 0;  // of the cgroup; 0: no limit
  std::vector<NodeFacts> nodes;
  std::vector<CacheFacts> last_caches;
};

enum class PageKind { kSmall, kHuge };
enum class Traffic { kRead, kWrite, kCopy };  // a copy counts the bytes read and those written

/// The pages of the memory that was measured, as obtained, not as asked for.
struct MemoryFigure {
  int node = 0;
  PageKind asked = PageKind::kSmall;
  uint64_t bytes = 0, huge_bytes = 0;
  uint64_t page_bytes = 0;   // size of most pages
  bool bound = false;        // false: the system refused to bind, the first touch decided
  std::string verified_by;   // "move_pages", "numa_maps", or empty: nobody says where pages are
  double share_on_node = 0;  // 0 … 1, if verified
};

inline constexpr int kAllNodes = -1;

/// `threads` pinned threads of `reader_node` on memory of `memory_node`; kAllNodes for both: every
/// node's cores on their own memory at once.
struct BandwidthFigure {
  Traffic traffic = Traffic::kRead;
  PageKind pages = PageKind::kSmall;
  int reader_node = 0, memory_node = 0;
  int threads = 1;
  Spread gb_per_s;
};

/// Dependent loads at random addresses, by one core.
struct LatencyFigure {
  int reader_node = 0, memory_node = 0;
  PageKind pages = PageKind::kSmall;
  Spread ns;
};

enum class Nearness { kSameCore, kSameCache, kSameNode, kSamePackage, kOtherPackage };

/// A modified cache line handed from one CPU to the other, one way.
struct LineFigure {
  int cpu_a = 0, cpu_b = 0;
  int node_a = 0, node_b = 0;
  Nearness nearness = Nearness::kSameNode;
  Spread ns;
};

/// The all-gather between ranks: all threads write their parts, meet, and read everything.
struct ExchangeFigure {
  int ranks = 1;
  int threads = 1;            // of the rank that has most
  bool simulated = false;     // ranks are parts of a node
  uint64_t gather_bytes = 0;  // of all slices together; 0: a barrier, nothing is written or read
  Spread ns;
};

/// One thread of the processor, all others of its node being as busy.
struct KernelFigure {
  std::string isa;         // as given to --isa
  std::string work;        // a type of weights, "attend", "prepare", "route" or "sample"
  int columns = 1;         // that meet the weights at once
  bool in_memory = false;  // weights come from memory, else from a cache
  Spread g_per_s;          // 1e9 products, values or scores a second
};

struct MachineProfile {
  std::string fingerprint;  // of the machine, see fingerprint_of()
  std::string measured_at;  // UTC, "2025-01-31T12:00:00Z"
  bool quick = false;       // fewer and shorter samples
  double seconds = 0;       // that measuring took
  double cpu_share = 0;     // 0 … 1: how much of their CPUs the measuring threads got
  MachineFacts facts;
  std::vector<MemoryFigure> memory;
  std::vector<BandwidthFigure> bandwidth;
  std::vector<LatencyFigure> latency;
  std::vector<LineFigure> lines;
  std::vector<ExchangeFigure> exchanges;
  std::vector<KernelFigure> kernels;
  std::vector<std::string> notes;  // what a reader must know, in sentences
};

}  // namespace shm
