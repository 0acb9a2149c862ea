// How the elements of a KV cache are kept, and how many bytes they take.
//
// q8_0: of each position and head, alone, each group of 32 neighbouring dimensions has one scale
// s, an f16, and each of its elements x a code: code = x / s rounded to nearest even, within ±127,
// where s = max |x| / 127, rounded to nearest even. A head size that is no multiple of 32 ends in a
// group of fewer dimensions. The error of an element is at most s / 2 or 2^-18, whichever is
// larger. Elements beyond 127 times the largest f16, infinities included, are kept as that; a NaN
// makes its group NaN.
//
// Plain values; any thread. Ids are stored in arena headers: never reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/limits.h"

namespace kernels {

enum class KvType : uint32_t { kF16 = 0, kF32 = 1, kQ8_0 = 2 };

/// As given to --kv-type: one word each, the default first.
inline constexpr const char* kKvTypeNames = "f16 q8_0 f32";
const char* kv_type_name(KvType type);
std::optional<KvType> find_kv_type(std::string_view name);

/// Dimensions that share a scale.
inline constexpr int kKvGroup = 32;
/// A whole group in a block: codes, then the scales of its 64 positions. Groups follow one another;
/// a last one of n dimensions has 64 n codes. Codes of K lie [n][64], of V [64][n].
inline constexpr size_t kKvGroupBytes = size_t{base::kKvBlockPositions} * (kKvGroup + 2);

/// Bytes of an element, and of a scale of each started group of 32 if there are any.
struct KvElement {
  int bytes = 2;
  int scale_bytes = 0;
};
KvElement kv_element(KvType type);
/// Bytes that K, or V, of one position takes in a head of `dims` dimensions; a block takes
/// kKvBlockPositions times as much.
size_t kv_row_bytes(KvType type, int64_t dims);

}  // namespace kernels
