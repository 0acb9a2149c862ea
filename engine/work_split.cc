#include "engine/work_split.h"

#include "base/check.h"

namespace engine {

WorkSplit::WorkSplit(int threads)
    : parts_(std::make_unique<Part[]>(static_cast<size_t>(threads))) {
  CHECK(threads >= 1, threads, " threads");
}

int WorkSplit::take(Part& part, uint64_t number) {
  const uint64_t first = number << 8;
  uint64_t taken = part.taken.load(std::memory_order_relaxed);
  while (taken < first + kPieces) {
    // Of an earlier dispatch: its pieces are all taken, or this thread would still be at it.
    const uint64_t now = std::max(taken, first);
    if (part.taken.compare_exchange_weak(taken, now + 1, std::memory_order_relaxed)) {
      return static_cast<int>(now - first);
    }
  }
  return kPieces;
}

}  // namespace engine
