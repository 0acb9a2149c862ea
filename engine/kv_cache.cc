#include "engine/kv_cache.h"

#include "base/check.h"
#include "base/limits.h"
#include "engine/buffer.h"

namespace engine {

KvPool::KvPool(const model::ModelSpec& spec, const plan::RankShare& share, kernels::KvType type,
               KvCounts counts)
    : type_(type) {
  CHECK(counts.blocks > 0);
  const size_t element = type == kernels::KvType::kF16 ? 2 : 4;
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Attention& attention = spec.blocks[layer].attention;
    Layer l;
    l.offset = bytes_;
    l.head_count = static_cast<size_t>(share.blocks[layer].kv_heads.size());
    l.k_bytes =
        round_up(element * base::kKvBlockPositions * static_cast<size_t>(attention.head_dim), 64);
    l.head_bytes =
        l.k_bytes +
        round_up(element * base::kKvBlockPositions * static_cast<size_t>(attention.value_dim), 64);
    l.near = counts.near > 0 && attention.reach != model::Reach::kAll;
    bytes_ +=
        l.head_count * l.head_bytes * static_cast<size_t>(l.near ? counts.near : counts.blocks);
    layers_.push_back(l);
  }
  // A rank without heads still binds something.
  bytes_ = bytes_ == 0 ? 64 : bytes_;
}

}  // namespace engine
