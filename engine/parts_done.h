// Tells who was last of those that did the parts of something, without anybody waiting.
//
// Thread rule: any thread of the team. What the others wrote before their calls is visible to the
// last one. Counters hold the number of the dispatch they count for (work_split.h), so nothing is
// reset, and a dispatch that was given up leaves nothing behind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"

namespace engine {

class PartsDone {
 public:
  /// For so many things at a time.
  explicit PartsDone(size_t things)
      : things_(things), counters_(std::make_unique<Counter[]>(things)) {}

  static constexpr int64_t kPartsMax = (int64_t{1} << 28) - 1;
  /// Called once for each of the `parts` parts of a thing, when it is done; true for the last one.
  /// `number` is larger than that of every earlier dispatch. REQUIRES: parts <= kPartsMax.
  bool is_last(size_t thing, uint64_t number, int64_t parts) {
    return is_last(thing, number, {.done = 1, .of = parts});
  }
  /// So many parts at once.
  struct Parts {
    int64_t done;
    int64_t of;
  };
  bool is_last(size_t thing, uint64_t number, const Parts& parts) {
    CHECK(thing < things_ && parts.of <= kPartsMax, thing, " of ", things_, ", ", parts.of,
          " parts");
    std::atomic<uint64_t>& done = counters_[thing].done;
    const uint64_t first = number << kBits;
    uint64_t before = done.load(std::memory_order_relaxed), after;
    do {
      const bool begun = before >> kBits == first >> kBits;
      after = (begun ? before : first) + static_cast<uint64_t>(parts.done);
    } while (!done.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
    return static_cast<int64_t>(after - first) == parts.of;
  }

 private:
  static constexpr int kBits = 28;  // of parts; above them the lowest ones of the number
  struct alignas(64) Counter {
    std::atomic<uint64_t> done{0};  // number of the dispatch, then parts that are done
  };
  const size_t things_;
  const std::unique_ptr<Counter[]> counters_;
};

}  // namespace engine
