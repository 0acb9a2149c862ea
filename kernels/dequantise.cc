#include "kernels/dequantise.h"

#include <bit>

#include "base/check.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace kernels {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place");

namespace {

/// The function of a type with blocks; nullptr for plain floats.
DequantiseBlock block_function(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: return nullptr;
    case TensorType::kQ4_0: return dequantise_q4_0;
    case TensorType::kQ4_1: return dequantise_q4_1;
    case TensorType::kQ5_0: return dequantise_q5_0;
    case TensorType::kQ5_1: return dequantise_q5_1;
    case TensorType::kQ8_0: return dequantise_q8_0;
    case TensorType::kQ2_K: return dequantise_q2_k;
    case TensorType::kQ3_K: return dequantise_q3_k;
    case TensorType::kQ4_K: return dequantise_q4_k;
    case TensorType::kQ5_K: return dequantise_q5_k;
    case TensorType::kQ6_K: return dequantise_q6_k;
    case TensorType::kIQ2_XXS: return dequantise_iq2_xxs;
    case TensorType::kIQ2_XS: return dequantise_iq2_xs;
    case TensorType::kIQ3_XXS: return dequantise_iq3_xxs;
    case TensorType::kIQ1_S: return dequantise_iq1_s;
    case TensorType::kIQ4_NL: return dequantise_iq4_nl;
    case TensorType::kIQ3_S: return dequantise_iq3_s;
    case TensorType::kIQ2_S: return dequantise_iq2_s;
    case TensorType::kIQ4_XS: return dequantise_iq4_xs;
    case TensorType::kIQ1_M: return dequantise_iq1_m;
    case TensorType::kMXFP4: return dequantise_mxfp4;
  }
  return nullptr;
}

}  // namespace

void dequantise_row(TensorType type, const std::byte* row, int64_t k, float* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (type) {
    case TensorType::kF32: std::memcpy(out, row, static_cast<size_t>(k) * sizeof(float)); return;
    case TensorType::kF16:
      for (int64_t i = 0; i < k; ++i) out[i] = f16_to_f32(load_u16(bytes + 2 * i));
      return;
    case TensorType::kBF16:
      for (int64_t i = 0; i < k; ++i) out[i] = bf16_to_f32(load_u16(bytes + 2 * i));
      return;
    default: break;
  }
  const TypeInfo& info = type_info(type);
  CHECK(k % info.block_weights == 0, "a row of ", k, " weights is not whole blocks of ", info.name);
  const DequantiseBlock dequantise_block = block_function(type);
  for (int64_t i = 0; i < k; i += info.block_weights) {
    dequantise_block(bytes, out + i);
    bytes += info.block_bytes;
  }
}

}  // namespace kernels
