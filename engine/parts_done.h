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

namespace engine {

class PartsDone {
 public:
  /// For so many things at a time.
  explicit PartsDone(size_t things) : counters_(std::make_unique<Counter[]>(things)) {}

  /// Called once for each of the `parts` parts of a thing, when it is done; true for the last one.
  /// `number` is larger than that of every earlier dispatch. REQUIRES: parts < 2^20.
  bool is_last(size_t thing, uint64_t number, int64_t parts) {
    return is_last(thing, number, {.done = 1, .of = parts});
  }
  /// So many parts at once.
  struct Parts {
    int64_t done;
    int64_t of;
  };
  bool is_last(size_t thing, uint64_t number, const Parts& parts) {
    std::atomic<uint64_t>& done = counters_[thing].done;
    uint64_t before = done.load(std::memory_order_relaxed), after;
    do {
      after = (before >> kBits == number ? before : number << kBits) +
              static_cast<uint64_t>(parts.done);
    } while (!done.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                         std::memory_order_relaxed));
    return static_cast<int64_t>(after & ((uint64_t{1} << kBits) - 1)) == parts.of;
  }

 private:
  static constexpr int kBits = 20;
  struct alignas(64) Counter {
    std::atomic<uint64_t> done{0};  // number of the dispatch, then parts that are done
  };
  const std::unique_ptr<Counter[]> counters_;
};

}  // namespace engine
