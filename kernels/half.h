// Conversions between float32 and the 16-bit floats of GGUF files and of the KV cache.
//
// Plain bit operations, exact or rounded to nearest even, so every CPU gives the same bits. They
// assume the default floating-point environment (no flush of subnormals). Always inlined, because a
// copy compiled for one instruction set must not be linked into the code for another. Any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace kernels {

inline constexpr float kF16Max = 65504.0f;

/// The exact value of an IEEE half; infinities and NaN stay what they are.
[[gnu::always_inline]] inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // The half's exponent, read as one of float32, is 112 too small; the product is exact also where
  // the half is subnormal.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

/// Nearest half, ties to even; beyond the largest finite half, infinities included, that one. NaN
/// stays NaN.
[[gnu::always_inline]] inline uint16_t f32_to_f16_clamped(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  magnitude =
      magnitude < std::bit_cast<uint32_t>(kF16Max) ? magnitude : std::bit_cast<uint32_t>(kF16Max);
  if (magnitude < 0x38800000u) {
    // Below 2^-14 halves are multiples of 2^-24, which is the last place of floats next to 0.5: the
    // addition does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// The exact value of a bfloat16.
[[gnu::always_inline]] inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace kernels
