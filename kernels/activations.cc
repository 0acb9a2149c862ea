#include "kernels/activations.h"

#include "base/check.h"
#include "kernels/ops.h"

namespace kernels {

namespace {

int64_t blocks_bytes(int64_t k, int64_t block_weights, size_t block_bytes) {
  return (k + block_weights - 1) / block_weights * static_cast<int64_t>(block_bytes);
}

int64_t column_bytes(ActivationFormat format, int64_t k) {
  switch (format) {
    case ActivationFormat::kF32: return k * static_cast<int64_t>(sizeof(float));
    case ActivationFormat::kQ8: return blocks_bytes(k, kBlockWeights, sizeof(ActivationBlock));
    case ActivationFormat::kQ8_32:
      return blocks_bytes(k, kSubBlockWeights, sizeof(ActivationBlock32));
  }
  CHECK(false, "activation format ", static_cast<uint32_t>(format));
}

}  // namespace

size_t activation_bytes(ActivationFormat format, int64_t k) {
  const int64_t bytes = column_bytes(format, k);
  // An odd number of cache lines: columns one after the other then spread over all sets of the
  // caches. An even one would let the same block of many columns compete for a few sets.
  const size_t lines = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment;
  return (lines | 1) * kAlignment;
}

}  // namespace kernels
