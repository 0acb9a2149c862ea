#include "kernels/finite.h"

#include <cstring>

namespace kernels {

namespace {

uint16_t load_half(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return half;
}

bool half_finite(uint16_t half) {
  return (half & 0x7c00u) != 0x7c00u;
}

// Where the half-precision scales of a block are, from its first byte; -1 for none.
struct ScaleOffsets {
  int first = -1, second = -1;
};

ScaleOffsets scale_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: return {0, 2};
    case TensorType::kQ2_K: return {80, 82};
    case TensorType::kQ3_K: return {108, -1};
    case TensorType::kQ6_K: return {208, -1};
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kIQ1_M:
    case TensorType::kMXFP4: return {};
    default: return {0, -1};
  }
}

// IQ1_M spreads its scale over the top four bits of four 16-bit words at byte 48.
uint16_t iq1_m_scale(const std::byte* block) {
  uint16_t words[4];
  std::memcpy(words, block + 48, sizeof words);
  return static_cast<uint16_t>((words[0] >> 12) | ((words[1] >> 8) & 0x00f0) |
                               ((words[2] >> 4) & 0x0f00) | (words[3] & 0xf000));
}

// Without a branch in the loop, so that compilers make vectors of it.
template <class T>
bool elements_finite(const std::byte* at, int64_t count, T exponent) {
  bool bad = false;
  for (int64_t i = 0; i < count; i++) {
    T bits;
    std::memcpy(&bits, at + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

bool block_finite(TensorType type, ScaleOffsets offsets, const std::byte* block) {
  switch (type) {
    case TensorType::kIQ1_M: return half_finite(iq1_m_scale(block));
    case TensorType::kMXFP4: return block[0] != std::byte{255};  // E8M0: 255 is NaN
    default:
      return half_finite(load_half(block + offsets.first)) &&
             (offsets.second < 0 || half_finite(load_half(block + offsets.second)));
  }
}

}  // namespace

bool rows_finite(TensorType type, const std::byte* rows, int64_t row_count, int64_t k) {
  const TypeInfo& info = type_info(type);
  const ScaleOffsets offsets = scale_offsets(type);
  const int64_t blocks = row_count * (k / info.block_weights);
  switch (type) {
    case TensorType::kF32: return elements_finite<uint32_t>(rows, blocks, 0x7f800000u);
    case TensorType::kF16: return elements_finite<uint16_t>(rows, blocks, 0x7c00u);
    case TensorType::kBF16: return elements_finite<uint16_t>(rows, blocks, 0x7f80u);
    default: break;
  }
  bool finite = true;
  for (int64_t i = 0; i < blocks; i++) {
    finite &= block_finite(type, offsets, rows + i * info.block_bytes);
  }
  return finite;
}

}  // namespace kernels
