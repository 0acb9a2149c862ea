// Deals the items of one product out to the threads of a rank: everybody starts with an even part
// of its own; whoever has done that takes what neighbours have not begun.
//
//   part of thread t:  | 1/2 of it      | 1/4    | 1/8 | 1/16 | rest |    pieces, taken in order by
//                                                                        its owner and by thieves
//
// Who computes a row never changes its bits, so who does may depend on time. A dispatch is one list
// of items; all threads of a rank come to the same dispatches in the same order, with the same
// number and total. A part's counter holds the number of a dispatch and how many of its pieces are
// taken: the first to come to a new dispatch moves it on, so nothing is reset and nobody waits.
// A counter with a later number says that all pieces of the earlier one are taken.
// Thread rule: any thread of the team; two dispatches need no wait between them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "plan/plan.h"

namespace engine {

class WorkSplit {
 public:
  explicit WorkSplit(int threads);

  /// One dispatch as one thread sees it.
  struct Dispatch {
    uint64_t number = 0;  // larger than that of every earlier dispatch, never 0
    int64_t total = 0;    // items
    int threads = 1;      // that share them, 1 … as constructed
    int thread = 0;       // this one
  };

  /// Calls `work(range)` for one range of items after the other, until none is left that this
  /// thread may take. Over all threads the ranges are [0, total), each item once; none is empty.
  template <class Work>
  void deal(const Dispatch& dispatch, Work work);

 private:
  /// Pieces of a part. A thread that is stopped in the middle of one lets the others wait for less
  /// the later it is, and most wait for nobody: what is left is shared.
  static constexpr int kPieces = 6;
  /// How many neighbours' counters a thread looks at: lines of other cores, each some 100 ns.
  static constexpr int kVictims = 3;

  struct alignas(128) Part {  // cores fetch pairs of lines
    /// Number of the dispatch * 256 + pieces taken. Relaxed: the waits before and after a product
    /// order what the pieces read and write.
    std::atomic<uint64_t> taken{0};
  };

  static plan::Range part_of(const Dispatch& dispatch, int thread) {
    return {dispatch.total * thread / dispatch.threads,
            dispatch.total * (thread + 1) / dispatch.threads};
  }
  /// The next piece of a part, [0, kPieces), or kPieces.
  int take(Part& part, uint64_t number);

  const std::unique_ptr<Part[]> parts_;  // [threads]
};

template <class Work>
void WorkSplit::deal(const Dispatch& dispatch, Work work) {
  if (dispatch.total <= 0) return;
  if (dispatch.threads == 1) {
    work(plan::Range{0, dispatch.total});
    return;
  }
  const int looked_at = std::min(dispatch.threads, 1 + kVictims);
  for (int i = 0; i < looked_at; i++) {
    const int owner = (dispatch.thread + i) % dispatch.threads;
    const plan::Range part = part_of(dispatch, owner);
    // Piece p ends where 1 / 2^(p + 1) of the part is left; the last one at its end.
    const auto end_of = [&](int piece) {
      return piece + 1 == kPieces ? part.end : part.end - (part.size() >> (piece + 1));
    };
    for (int piece = 0; (piece = take(parts_[owner], dispatch.number)) < kPieces;) {
      const plan::Range range{piece == 0 ? part.begin : end_of(piece - 1), end_of(piece)};
      if (!range.empty()) work(range);
    }
  }
}

}  // namespace engine
