// One sample of each quantity that shm/probe.h measures; whoever wants a spread takes several.
//
// Every function runs its own pinned threads, returns early when `stop` is set (its value then
// means nothing), and fails as run_pinned() does. Thread rule: one caller at a time.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "shm/machine_profile.h"
#include "shm/probe_memory.h"
#include "shm/shm_exchange.h"
#include "shm/topology.h"

namespace shm {

/// What one thread reads, writes or copies, again and again.
struct StreamSlice {
  int cpu = 0;
  std::span<std::byte> bytes;
};

struct BandwidthSample {
  Traffic traffic = Traffic::kRead;
  base::TimeNs window_ns = 0;  // how long
  int round = 0;               // other rounds begin elsewhere, so as not to find caches warm
};

struct Bandwidth {
  double gb_per_s = 0;   // sum over threads: bytes by the CPU time that the thread got
  double cpu_share = 0;  // CPU time of all threads by the time that passed; 1 on an idle machine
};

/// By CPU time, which goes on while a thread waits for memory and stops while another program has
/// its CPU: so a busy machine makes figures less exact, not wrong by its load.
base::Result<Bandwidth> sample_bandwidth(std::span<const StreamSlice> slices,
                                         const BandwidthSample& sample,
                                         const std::atomic<bool>& stop);

/// A random walk over the lines of a piece of memory, made once and continued by every sample, so
/// that no line comes twice before all have come.
class Chain {
 public:
  /// Over the largest power of two lines that the memory holds, which must outlive this. `cpus`
  /// write it.
  static base::Result<Chain> create(const ProbeMemory& memory, std::span<const int> cpus);
  /// Nanoseconds of one load, from `cpu`; the median of batches of `hops` altogether.
  base::Result<double> sample(int cpu, size_t hops);

 private:
  explicit Chain(const std::byte* at) : at_(at) {}
  const std::byte* at_;
};

/// Nanoseconds until a store of one CPU is seen by another: half of a ping-pong, the median of
/// `batches` of some hundred. REQUIRES: two CPUs.
base::Result<double> sample_line(int cpu_a, int cpu_b, int batches, const std::atomic<bool>& stop);

/// Ranks that are threads of this process, each with its region on its own node.
class ExchangeRig {
 public:
  struct Options {
    std::vector<RankPlacement> ranks;
    size_t gather_bytes_max = 0;
    bool oversubscribed = false;
  };
  static base::Result<std::unique_ptr<ExchangeRig>> create(const Options& options,
                                                           const std::atomic<bool>& stop);

  struct Load {
    size_t gather_bytes = 0;  // of all slices together; 0: a barrier
    int gathers = 0;          // about; some more warm up
  };
  /// Nanoseconds of one gather, as the first thread of rank 0 sees it.
  base::Result<double> sample(const Load& load, const std::atomic<bool>& stop);

 private:
  ExchangeRig() = default;
  double run_thread(size_t rank, size_t thread, const Load& load, const std::atomic<bool>& stop);

  std::vector<RankPlacement> ranks_;
  std::vector<ProbeMemory> regions_;                     // [ranks], then one for the abort word
  std::vector<std::unique_ptr<ShmExchange>> exchanges_;  // [ranks]
  uint64_t sequence_ = 0;                                // of the next gather
};

}  // namespace shm
