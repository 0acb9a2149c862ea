// What a block of a KV cache holds, read element by element as kv_type.h describes it; nothing is
// shared with the code under test but the conversion of a half.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/half.h"
#include "kernels/kv_type.h"

namespace kernels::testing {

enum class Of { kKeys, kValues };

/// Offset of the code of a q8_0 element, and of its scale.
struct Q8Offsets {
  int64_t code, scale;
};
inline Q8Offsets q8_offsets(Of of, int64_t dims, int64_t slot, int64_t dim) {
  const int64_t group = dim / 32, in_group = std::min<int64_t>(32, dims - 32 * group);
  const int64_t begin = group * (32 * 64 + 64 * 2);
  const int64_t code = of == Of::kKeys ? dim % 32 * 64 + slot : slot * in_group + dim % 32;
  return {begin + code, begin + in_group * 64 + slot * 2};
}

/// Element `dim` of the position in slot `slot` of K or V of one head of `dims` dimensions.
inline float stored_element(KvType type, Of of, const std::byte* block, int64_t dims, int64_t slot,
                            int64_t dim) {
  const auto half_at = [&](int64_t offset) {
    uint16_t half;
    std::memcpy(&half, block + offset, 2);
    return f16_to_f32(half);
  };
  if (type == KvType::kQ8_0) {
    const Q8Offsets at = q8_offsets(of, dims, slot, dim);
    int8_t code;
    std::memcpy(&code, block + at.code, 1);
    return static_cast<float>(code) * half_at(at.scale);  // exact
  }
  const int64_t element = of == Of::kKeys ? dim * 64 + slot : slot * dims + dim;
  if (type == KvType::kF16) return half_at(element * 2);
  float value;
  std::memcpy(&value, block + element * 4, 4);
  return value;
}

}  // namespace kernels::testing
