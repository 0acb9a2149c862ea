// The KV pool of one rank: where keys and values of each layer, block and KV head lie.
//
//   pool: layer 0: block 0: head 0: K [head_dim][64] V [64][value_dim], head 1: …   block 1: …
//         layer 1: …
//   of a latent:                      K [64][head_dim], whose first value_dim elements are V
//
// Layers that reach near positions only may have fewer blocks than the others, of their own
// numbers: what no position reaches any more is not kept there.
// A block holds kKvBlockPositions positions of one sequence and is one attention chunk. Which block
// belongs to which sequence is the leader's business (block tables of a step).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "model/model.h"
#include "plan/plan.h"

namespace engine {

/// Blocks of the pool.
struct KvCounts {
  int32_t blocks = 0;
  int32_t near = 0;  // of each layer that reaches near positions only; 0: as many as the others
};

class KvPool {
 public:
  /// Layout only. REQUIRES: counts.blocks > 0.
  KvPool(const model::ModelSpec& spec, const plan::RankShare& share, kernels::KvType type,
         KvCounts counts);

  /// Size of the memory that bind() wants; 64-byte aligned.
  size_t bytes() const { return bytes_; }
  /// `memory` [bytes()] must outlive the pool.
  void bind(std::byte* memory) { memory_ = memory; }

  kernels::KvType type() const { return type_; }
  /// Whether the blocks of this layer are those of StepView::near_blocks().
  bool is_near(size_t layer) const { return layers_[layer].near; }

  /// K and V of one block; `own_head` counts from the rank's first KV head.
  std::byte* k_block(size_t layer, int32_t block, int64_t own_head) const {
    const Layer& l = layers_[layer];
    return memory_ + l.offset +
           (static_cast<size_t>(block) * l.head_count + static_cast<size_t>(own_head)) *
               l.head_bytes;
  }
  /// REQUIRES: the layer has no latent.
  std::byte* v_block(size_t layer, int32_t block, int64_t own_head) const {
    return k_block(layer, block, own_head) + layers_[layer].k_bytes;
  }

 private:
  struct Layer {
    size_t offset = 0;
    size_t head_count = 0;  // own KV heads
    size_t k_bytes = 0;     // K of one block and head
    size_t head_bytes = 0;  // K and V of one block and head
    bool near = false;
  };

  kernels::KvType type_;
  std::vector<Layer> layers_;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace engine
