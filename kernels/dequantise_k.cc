// Types with blocks of 256 weights in sub-blocks of 16 or 32, each with a small integer scale (and
// minimum) times the block's f16 scale (and minimum).
#include "kernels/dequantise.h"
#include "kernels/half.h"

namespace kernels {

namespace {

struct ScaleAndMinimum {
  int scale, minimum;
};

/// Six-bit scale and minimum of sub-block `j` (0 … 7) of Q4_K and Q5_K, from their 12 bytes:
///   bytes 0 … 3   low 6 bits: scales 0 … 3;    high 2 bits: bits 4, 5 of scales 4 … 7
///   bytes 4 … 7   low 6 bits: minima 0 … 3;    high 2 bits: bits 4, 5 of minima 4 … 7
///   bytes 8 … 11  low 4 bits of scales 4 … 7, then of minima 4 … 7
ScaleAndMinimum scale_and_minimum(const uint8_t* packed, int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6)
                                                                                       << 4};
}

}  // namespace

// [16 x (4-bit scale, 4-bit minimum)][64 bytes of 2-bit codes][f16 scale][f16 minimum]
// Byte l of each half's 32 holds the codes of weights l, l + 32, l + 64, l + 96 of that half.
void dequantise_q2_k(const uint8_t* block, float* out) {
  const uint8_t* codes = block + 16;
  const float scale = f16_to_f32(load_u16(block + 80));
  const float minimum = f16_to_f32(load_u16(block + 82));
  for (int j = 0; j < 16; ++j) {
    const float sub_scale = scale * static_cast<float>(block[j] & 15);
    const float sub_minimum = minimum * static_cast<float>(block[j] >> 4);
    const uint8_t* sub_codes = codes + j / 8 * 32 + j % 2 * 16;
    const int shift = j % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      out[j * 16 + i] = sub_scale * static_cast<float>((sub_codes[i] >> shift) & 3) - sub_minimum;
    }
  }
}

// [32 bytes of third bits][64 bytes of 2-bit codes as in Q2_K][12 bytes of scales][f16 scale]
// Bit b of byte l is the third bit of weight l + 32 b; value = scale * (sub - 32) * (code - 4).
// Scales: the low 4 bits of sub-block j are a half of byte j % 8, the 2 high ones in byte 8 + j
// % 4.
void dequantise_q3_k(const uint8_t* block, float* out) {
  const uint8_t* codes = block + 32;
  const uint8_t* scales = block + 96;
  const float scale = f16_to_f32(load_u16(block + 108));
  for (int j = 0; j < 16; ++j) {
    const int low = (scales[j % 8] >> (j / 8 * 4)) & 15;
    const int high = (scales[8 + j % 4] >> (j / 4 * 2)) & 3;
    const float sub_scale = scale * static_cast<float>((low | high << 4) - 32);
    const uint8_t* sub_codes = codes + j / 8 * 32 + j % 2 * 16;
    const uint8_t* sub_high = block + j % 2 * 16;
    const int shift = j % 8 / 2 * 2;
    for (int i = 0; i < 16; ++i) {
      const int code = ((sub_codes[i] >> shift) & 3) | ((sub_high[i] >> (j / 2)) & 1) << 2;
      out[j * 16 + i] = sub_scale * static_cast<float>(code - 4);
    }
  }
}

// [f16 scale][f16 minimum][12 bytes of scales and minima][128 bytes of 4-bit codes]
// Each 32 bytes hold two sub-blocks: the low halves are the first, the high halves the second.
void dequantise_q4_k(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMinimum sub = scale_and_minimum(block + 4, j);
    const float sub_scale = scale * static_cast<float>(sub.scale);
    const float sub_minimum = minimum * static_cast<float>(sub.minimum);
    const uint8_t* codes = block + 16 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out[j * 32 + i] = sub_scale * static_cast<float>((codes[i] >> shift) & 15) - sub_minimum;
    }
  }
}

// As Q4_K with [32 bytes of fifth bits] before the codes; bit j of byte i is that of weight i of
// sub-block j.
void dequantise_q5_k(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  const uint8_t* high = block + 16;
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMinimum sub = scale_and_minimum(block + 4, j);
    const float sub_scale = scale * static_cast<float>(sub.scale);
    const float sub_minimum = minimum * static_cast<float>(sub.minimum);
    const uint8_t* codes = block + 48 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int code = ((codes[i] >> shift) & 15) | ((high[i] >> j) & 1) << 4;
      out[j * 32 + i] = sub_scale * static_cast<float>(code) - sub_minimum;
    }
  }
}

// [128 bytes of low 4 bits][64 bytes of high 2 bits][16 int8 scales][f16 scale]
// Value = scale * sub * (code - 32). Each half of the block has 64 + 32 bytes: weight l + 32 q of a
// half has its low bits in byte l + 32 (q % 2), the half of the byte being q / 2, and its high bits
// in byte l, bits 2 q and 2 q + 1.
void dequantise_q6_k(const uint8_t* block, float* out) {
  const uint8_t* scales = block + 192;
  const float scale = f16_to_f32(load_u16(block + 208));
  for (int j = 0; j < 16; ++j) {
    const float sub_scale = scale * static_cast<float>(static_cast<int8_t>(scales[j]));
    const int half = j / 8;
    const int quarter = j % 8 / 2;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32 + j % 2 * 16;
    const uint8_t* high = block + 128 + half * 32 + j % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      const int code = ((low[i] >> (quarter / 2 * 4)) & 15) | ((high[i] >> (quarter * 2)) & 3) << 4;
      out[j * 16 + i] = sub_scale * static_cast<float>(code - 32);
    }
  }
}

// [f16 scale][8 x 2 high bits of the scales][8 x 4 low bits][128 bytes of 4-bit codes]
// Value = scale * (sub - 32) * kIq4Values[code]; each 16 bytes hold one sub-block of 32, low halves
// first.
void dequantise_iq4_xs(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const int high = load_u16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const int sub = ((block[4 + j / 2] >> (j % 2 * 4)) & 15) | ((high >> (j * 2)) & 3) << 4;
    const float sub_scale = scale * static_cast<float>(sub - 32);
    const uint8_t* codes = block + 8 + j * 16;
    for (int i = 0; i < 16; ++i) {
      out[j * 32 + i] = sub_scale * static_cast<float>(kIq4Values[codes[i] & 15]);
      out[j * 32 + 16 + i] = sub_scale * static_cast<float>(kIq4Values[codes[i] >> 4]);
    }
  }
}

}  // namespace kernels
