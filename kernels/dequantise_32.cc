// Types with blocks of 32 weights. Four-bit codes: the low halves of the 16 bytes are the first 16
// weights, the high halves the last 16.
#include <bit>

#include "kernels/dequantise.h"
#include "kernels/half.h"

namespace kernels {

namespace {

constexpr int kWeights = 32;

/// out[i] = value(four-bit code of weight i, i).
template <class Value>
void put_nibbles(const uint8_t* codes, float* out, Value value) {
  for (int i = 0; i < 16; ++i) out[i] = value(codes[i] & 15, i);
  for (int i = 0; i < 16; ++i) out[16 + i] = value(codes[i] >> 4, 16 + i);
}

/// The same with a fifth bit per weight: bit i of `high`.
template <class Value>
void put_five_bits(const uint8_t* codes, uint32_t high, float* out, Value value) {
  put_nibbles(codes, out, [&](int code, int i) {
    return value(code | static_cast<int>((high >> i) & 1) << 4);
  });
}

}  // namespace

// [f16 scale][16 codes of 4 bits x 2], value = scale * (code - 8)
void dequantise_q4_0(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  put_nibbles(block + 2, out, [&](int code, int) { return scale * static_cast<float>(code - 8); });
}

// [f16 scale][f16 minimum][codes], value = scale * code + minimum
void dequantise_q4_1(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  put_nibbles(block + 4, out,
              [&](int code, int) { return scale * static_cast<float>(code) + minimum; });
}

// [f16 scale][32 fifth bits][codes], value = scale * (code - 16)
void dequantise_q5_0(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const uint32_t high = load_u32(block + 2);
  put_five_bits(block + 6, high, out,
                [&](int code) { return scale * static_cast<float>(code - 16); });
}

// [f16 scale][f16 minimum][32 fifth bits][codes], value = scale * code + minimum
void dequantise_q5_1(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  const uint32_t high = load_u32(block + 4);
  put_five_bits(block + 8, high, out,
                [&](int code) { return scale * static_cast<float>(code) + minimum; });
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
  put_nibbles(block + 2, out,
              [&](int code, int) { return scale * static_cast<float>(kIq4Values[code]); });
}

// [e8m0 scale][codes], value = 2^(scale - 127) * e2m1(code): the OCP microscaling format. The table
// holds doubled values, so the scale is halved; the two smallest scales are then subnormal.
void dequantise_mxfp4(const uint8_t* block, float* out) {
  constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = block[0];
  const float half_scale =
      std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  put_nibbles(block + 1, out,
              [&](int code, int) { return half_scale * static_cast<float>(kDoubled[code]); });
}

}  // namespace kernels
