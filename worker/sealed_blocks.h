// Which KV blocks hold which tokens already: what a sequence need not compute again.
//
// The seam between the batcher, which knows blocks and sequences, and whoever remembers contents,
// also beyond the life of this process. A sealed block holds kKvBlockPositions positions on every
// rank; what they are depends on all tokens from position 0 on, so a block is known by its own
// tokens and the sealed block before it. The index decides what it trusts; the batcher asks only
// for blocks that no sequence is using. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace worker {

class SealedBlocks {
 public:
  virtual ~SealedBlocks() = default;

  /// All that are sealed now, each once; those that are to be overwritten first come first.
  virtual std::vector<int32_t> sealed() const = 0;

  /// The blocks that hold `tokens` from position 0 on, in order, as many as there are; of those
  /// that hold the same, one that is `usable`. `tokens` are whole blocks: size() is a multiple of
  /// kKvBlockPositions.
  virtual std::vector<int32_t> find(std::span<const int32_t> tokens,
                                    const std::function<bool(int32_t)>& usable) = 0;

  struct Place {
    int32_t block = -1;
    int32_t previous = -1;  // the sealed block before it; -1: the sequence begins with it
    int32_t near = -1;      // with the same positions of layers that reach near ones only; -1: none
  };
  /// All ranks have written the block: it holds `tokens` [kKvBlockPositions] after what the
  /// previous one holds. Several blocks may hold the same.
  virtual void seal(const Place& place, std::span<const int32_t> tokens) = 0;

  /// `block` is going to be overwritten: called before the step that does. It may not be sealed.
  virtual void forget(int32_t block) = 0;

  /// The near block that goes with a sealed one, -1: it was overwritten. Each goes with one at
  /// most.
  virtual int32_t near_of(int32_t block) const = 0;
  /// All of them, each once.
  virtual std::vector<int32_t> sealed_near() const = 0;
  /// Near block `near` is going to be overwritten: called before the step that does.
  virtual void forget_near(int32_t near) = 0;
};

}  // namespace worker
