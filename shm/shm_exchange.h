// The all-gather between ranks of one host (base/exchange.h), through shared memory.
//
//   region of one rank, on its own node:
//   0          128            4096                 4096 + S        4096 + 2 S
//   | header   | generation   | slice, even gather | odd gather    |      S = slice, whole lines
//
// Threads of a rank arrive on a counter of their process; the last one raises the rank's
// generation. Every thread then awaits the generation of every member, its own too, so a gather is
// also a barrier of its members. A generation is the number of the rank's last gather; those that
// it left out it passes over, which nobody sees: members of a gather only wait for members, and one
// that is past the number has taken part. base/exchange.h says why two slices suffice.
//
// Each rank has its own object over the same memory: ranks may be processes or threads.
// Thread rule: arrive_and_wait() by exactly shape.threads threads, or as many as were set;
// everything else by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/exchange.h"
#include "base/result.h"
#include "shm/counter.h"
#include "shm/signals.h"

namespace shm {

struct ShmExchangeShape {
  int ranks = 1;               // 1 … kRanksMax
  int threads = 1;             // of this rank; others may have other numbers
  size_t slice_bytes_max = 0;  // the same on all ranks
};

/// Who wrote a region and for whom: proves that two ranks map the same memory.
struct GroupNonce {
  uint64_t words[2] = {};
  bool operator==(const GroupNonce&) const = default;
};

/// Counted since construction.
struct ExchangeStats {
  uint64_t gathers = 0;
  uint64_t sleeps = 0;  // futex sleeps of all threads of this rank
  int64_t wait_ns = 0;  // from the rank's last arrival to that of all members
};

class ShmExchange final : public base::Exchange {
 public:
  /// Bytes of one rank's region.
  static size_t bytes_per_rank(const ShmExchangeShape& shape);

  struct Stamp {
    int rank = 0;
    GroupNonce nonce;
    uint64_t first_sequence = 0;  // of the first gather
  };
  /// Lays out the rank's own region, before anyone else looks at it. REQUIRES: zeroed memory.
  static void format(std::byte* region, const ShmExchangeShape& shape, const Stamp& stamp);
  /// Whether a region was laid out by that rank for this shape and group.
  static base::Result<void> verify(const std::byte* region, const ShmExchangeShape& shape,
                                   const Stamp& stamp);

  /// Memory and signals that outlive the exchange; all regions formatted.
  struct Options {
    ShmExchangeShape shape;
    int rank = 0;
    std::vector<std::byte*> regions;  // [ranks]
    GroupSignals signals;
    WaitOptions wait = {};
  };
  explicit ShmExchange(Options options);

  int rank() const override { return rank_; }
  int rank_count() const override { return shape_.ranks; }
  size_t slice_bytes_max() const override { return shape_.slice_bytes_max; }
  std::byte* outgoing(uint64_t sequence) override { return slice(sequence, rank_); }
  const std::byte* incoming(uint64_t sequence, int rank) const override {
    return slice(sequence, rank);
  }
  void set_threads(int threads) override { threads_ = threads; }
  using base::Exchange::arrive_and_wait;
  base::Wait arrive_and_wait(const base::Gather& gather) override;
  void abort() override;

  ExchangeStats stats() const;

 private:
  Counter& generation(int rank) const;
  std::byte* slice(uint64_t sequence, int rank) const {
    return regions_[static_cast<size_t>(rank)] + kSlicesOffset + (sequence & 1) * slice_stride_;
  }
  void publish(const base::Gather& gather);
  base::Wait await_members(const base::Gather& gather, WaitBudget& budget);

  static constexpr size_t kSlicesOffset = 4096;

  // Constant after construction.
  const ShmExchangeShape shape_;
  const int rank_;
  const size_t slice_stride_;
  const std::vector<std::byte*> regions_;  // [ranks]
  const GroupSignals signals_;
  const WaitOptions wait_;
  // Written between gathers.
  int threads_;

  // Shared by the threads of this rank, atomic.
  alignas(128) std::atomic<int> arrived_{0};  // acq_rel: the last arrival sees all slices' parts
  alignas(128) std::atomic<uint64_t> sleeps_{0};  // relaxed, statistics
  std::atomic<uint64_t> gathers_{0};              // relaxed, written by the last to arrive
  std::atomic<int64_t> wait_ns_{0};               // relaxed, written by the last to arrive
};

}  // namespace shm
