// Types with blocks of 32 weights. Four-bit codes: the low halves of the 16 bytes are the first 16
// weights, the high halves the last 16.
#include <bit>

#include "kernels/dequantise.h"
#include "kernels/half.h"

namespace kernels {

namespace {

constexpr int kWeights = 32;

/// The four low bits of the code of weight `i`.
int nibble(const uint8_t* codes, int i) {
  return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
}

/// The code of weight `i` with a fifth bit from `high`, bit i of it.
int five_bits(const uint8_t* codes, uint32_t high, int i) {
  return nibble(codes, i) | static_cast<int>((high >> i) & 1) << 4;
}

}  // namespace

// [f16 scale][16 codes of 4 bits x 2], value = scale * (code - 8)
void dequantise_q4_0(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < kWeights; ++i) out[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

// [f16 scale][f16 minimum][codes], value = scale * code + minimum
void dequantise_q4_1(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  for (int i = 0; i < kWeights; ++i) {
    out[i] = scale * static_cast<float>(nibble(block + 4, i)) + minimum;
  }
}

// [f16 scale][32 fifth bits][codes], value = scale * (code - 16)
void dequantise_q5_0(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const uint32_t high = load_u32(block + 2);
  for (int i = 0; i < kWeights; ++i) {
    out[i] = scale * static_cast<float>(five_bits(block + 6, high, i) - 16);
  }
}

// [f16 scale][f16 minimum][32 fifth bits][codes], value = scale * code + minimum
void dequantise_q5_1(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  const uint32_t high = load_u32(block + 4);
  for (int i = 0; i < kWeights; ++i) {
    out[i] = scale * static_cast<float>(five_bits(block + 8, high, i)) + minimum;
  }
}

// [f16 scale][32 int8]
void dequantise_q8_0(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < kWeights; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// [f16 scale][codes], value = scale * kIq4Values[code]
void dequantise_iq4_nl(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < kWeights; ++i) {
    out[i] = scale * static_cast<float>(kIq4Values[nibble(block + 2, i)]);
  }
}

// [e8m0 scale][codes], value = 2^(scale - 127) * e2m1(code): the OCP microscaling format. The table
// holds doubled values, so the scale is halved; the two smallest scales are then subnormal.
void dequantise_mxfp4(const uint8_t* block, float* out) {
  constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = block[0];
  const float half_scale =
      std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  for (int i = 0; i < kWeights; ++i) {
    out[i] = half_scale * static_cast<float>(kDoubled[nibble(block + 1, i)]);
  }
}

}  // namespace kernels
