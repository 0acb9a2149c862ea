// The tensor types of GGUF files: ids, names and block sizes. Plain facts, no code that computes.
//
// Source: the GGUF specification and ggml's published type table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kernels {

/// Tensor types by their id in GGUF files.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct TypeInfo {
  TensorType type;
  std::string_view name;  // as GGUF tools print it, for example "Q4_K"
  int block_weights;      // weights of one block; rows are whole blocks
  int block_bytes;        // bytes of one block in the file
};

/// Facts about a type; nullptr if `id` is none that this program reads.
const TypeInfo* find_type(uint32_t id);
/// Facts about a known type.
const TypeInfo& type_info(TensorType type);
/// The type of that name (case-sensitive), if there is one.
std::optional<TensorType> type_by_name(std::string_view name);

/// Bytes of one row of `k` weights. REQUIRES: k is a multiple of the block.
inline int64_t row_bytes(TensorType type, int64_t k) {
  const TypeInfo& info = type_info(type);
  return k / info.block_weights * info.block_bytes;
}

}  // namespace kernels
