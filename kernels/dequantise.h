// What the blocks of GGUF's tensor types mean: one plain function per type, block in, floats out.
//
// Internal to kernels; others call dequantise_row of kernels/ops.h. Every product and sum is a
// separate float32 operation in the order of the published definition, so results are exact to the
// bit. The pictures beside the functions show a block's bytes from the left. Any thread.
#pragma once

#include <cstdint>
#include <cstring>

namespace kernels {

/// Writes the values of one block. `block` may have any alignment.
using DequantiseBlock = void (*)(const uint8_t* block, float* out);

/// Blocks of 32 (dequantise_32.cc).
void dequantise_q4_0(const uint8_t* block, float* out);
void dequantise_q4_1(const uint8_t* block, float* out);
void dequantise_q5_0(const uint8_t* block, float* out);
void dequantise_q5_1(const uint8_t* block, float* out);
void dequantise_q8_0(const uint8_t* block, float* out);
void dequantise_iq4_nl(const uint8_t* block, float* out);
void dequantise_mxfp4(const uint8_t* block, float* out);

/// Blocks of 256 with sub-blocks of 16 or 32 (dequantise_k.cc).
void dequantise_q2_k(const uint8_t* block, float* out);
void dequantise_q3_k(const uint8_t* block, float* out);
void dequantise_q4_k(const uint8_t* block, float* out);
void dequantise_q5_k(const uint8_t* block, float* out);
void dequantise_q6_k(const uint8_t* block, float* out);
void dequantise_iq4_xs(const uint8_t* block, float* out);

/// Blocks of 256 whose codes name vectors of a codebook (dequantise_iq.cc).
void dequantise_iq1_s(const uint8_t* block, float* out);
void dequantise_iq1_m(const uint8_t* block, float* out);
void dequantise_iq2_xxs(const uint8_t* block, float* out);
void dequantise_iq2_xs(const uint8_t* block, float* out);
void dequantise_iq2_s(const uint8_t* block, float* out);
void dequantise_iq3_xxs(const uint8_t* block, float* out);
void dequantise_iq3_s(const uint8_t* block, float* out);

/// What the 16 codes of IQ4_NL and IQ4_XS stand for.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/// Little-endian integers at any address.
inline uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace kernels
