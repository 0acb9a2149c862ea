// The records of base/step_feed.h in shared memory.
//
//   0           128                      128 (1 + kRanksMax)
//   | published | read by rank 0, 1, …   | record, even n | record, odd n |
//
// Followers copy a record before they look at it, so nothing can change under their hands. Thread
// rule: one thread of the leader, one thread of each follower; abort() by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/step_feed.h"
#include "shm/counter.h"
#include "shm/signals.h"

namespace shm {

struct StepBoardShape {
  int ranks = 1;
  size_t record_bytes_max = 0;
};

class StepBoard final : public base::StepFeed {
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

  size_t record_bytes_max() const override { return shape_.record_bytes_max; }
  base::Wait publish(uint64_t sequence, std::span<const std::byte> record) override;
  base::Wait read(uint64_t sequence, base::TimeNs slice_ns,
                  std::vector<std::byte>& record) override;
  void abort() override;

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
