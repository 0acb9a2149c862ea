#include "engine/kv_cache.h"

#include "base/check.h"
#include "base/limits.h"
#include "engine/buffer.h"

namespace engine {

KvPool::KvPool(const model::ModelSpec& spec, const plan::RankShare& share, kernels::KvType type,
               KvCounts counts)
    : type_(type) {
  CHECK(counts.blocks > 0);
  const auto part_bytes = [&](int64_t dims) {
    return round_up(base::kKvBlockPositions * kernels::kv_row_bytes(type, dims), 64);
  };
  for (size_t layer = 0; layer < spec.blocks.size(); layer++) {
    const model::Attention& attention = spec.blocks[layer].attention;
    Layer l;
    l.offset = bytes_;
    l.head_count = static_cast<size_t>(share.blocks[layer].kv_heads.size());
    l.k_bytes = part_bytes(attention.head_dim);
    l.head_bytes = l.k_bytes + part_bytes(attention.cached_value_dim());
    l.near = counts.near > 0 && attention.reach != model::Reach::kAll;
    bytes_ +=
        l.head_count * l.head_bytes * static_cast<size_t>(l.near ? counts.near : counts.blocks);
    layers_.push_back(l);
  }
  // A rank without heads still binds something.
  bytes_ = bytes_ == 0 ? 64 : bytes_;
}

}  // namespace engine
