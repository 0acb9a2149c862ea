// How a leader tells its followers what to do next: byte records, one after the other, in shared
// memory.
//
//   leader:    publish(n, record)                follower:  read(n, slice) -> record, again and
//   again
//
//   0           128                      128 (1 + kRanksMax)
//   | published | read by rank 0, 1, …   | record, even n | record, odd n |
//
// Two records are kept: publish(n) waits until every follower has read n - 2. Records mean nothing
// here. Followers copy a record before they look at it, so nothing can change under their hands.
// Thread rule: one thread of the leader, one thread of each follower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/exchange.h"
#include "shm/counter.h"
#include "shm/signals.h"

namespace shm {

struct StepBoardShape {
  int ranks = 1;
  size_t record_bytes_max = 0;
};

class StepBoard {
 public:
  static size_t bytes(const StepBoardShape& shape);
  /// Lays the board out, once, before anyone else looks at it. REQUIRES: zeroed memory.
  static void format(std::byte* board, const StepBoardShape& shape, uint64_t first_sequence);

  /// Memory and signals that outlive the board; `board` formatted and 128-byte aligned.
  struct Options {
    StepBoardShape shape;
    int rank = 0;
    std::byte* board = nullptr;
    GroupSignals signals;
    WaitOptions wait = {};
  };
  explicit StepBoard(Options options);

  size_t record_bytes_max() const { return shape_.record_bytes_max; }

  /// Leader: shows record `sequence`, the next after the last. Waits for slow followers, at most
  /// the wait options' timeout. REQUIRES: rank 0, record.size() <= record_bytes_max.
  base::Wait publish(uint64_t sequence, std::span<const std::byte> record);

  /// Follower: copies record `sequence` into `record`. kTimeout when none came within `slice_ns`:
  /// look at other things and call again. Allocates nothing if `record` has the capacity.
  base::Wait read(uint64_t sequence, base::TimeNs slice_ns, std::vector<std::byte>& record);

  /// Makes all waits of the group return kAborted, also those on this board.
  void abort();

 private:
  struct Lines;
  Lines& lines() const;
  std::byte* slot(uint64_t sequence) const;

  // Constant after construction.
  const StepBoardShape shape_;
  const int rank_;
  std::byte* const board_;
  const GroupSignals signals_;
  const WaitOptions wait_;
};

}  // namespace shm
