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

  /// All ranks have written `block`: it holds `tokens` [kKvBlockPositions] after what `previous`
  /// holds, a sealed block, or -1 where the sequence begins. Several blocks may hold the same.
  virtual void seal(int32_t block, int32_t previous, std::span<const int32_t> tokens) = 0;

  /// `block` is going to be overwritten: called before the step that does. It may not be sealed.
  virtual void forget(int32_t block) = 0;
};

}  // namespace worker
