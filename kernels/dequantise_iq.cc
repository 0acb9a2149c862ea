// Codebook types: a code of 8 to 11 bits names a vector of 8 (IQ3: 4) small magnitudes, signs lie
// beside it, and each sub-block of 16 or 32 has a small odd integer as its scale.
#include <bit>

#include "kernels/dequantise.h"
#include "kernels/half.h"
#include "kernels/iq_tables.h"

namespace kernels {

namespace {

/// Signs of 8 weights from 7 bits: the eighth makes the number of minus signs even.
uint32_t even_signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
}

/// 8 values of an IQ2 vector; bit i of `signs` negates weight i.
void put_iq2(uint32_t grid, uint32_t signs, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float value = scale * static_cast<float>(kLevelsIq2[(grid >> (2 * i)) & 3]);
    out[i] = (signs >> i) & 1 ? -value : value;
  }
}

float level_iq3_xxs(uint32_t level) {
  return static_cast<float>(kLevelsIq3Xxs[level]);
}
float level_iq3_s(uint32_t level) {
  return static_cast<float>(2 * level + 1);
}

/// 8 values of two IQ3 vectors, `grid` having the levels of both.
template <float (*level)(uint32_t)>
void put_iq3(uint32_t grid, uint32_t signs, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float value = scale * level((grid >> (3 * i)) & 7);
    out[i] = (signs >> i) & 1 ? -value : value;
  }
}

/// 8 values of an IQ1 vector: -1, 0 or 1, all shifted by `delta`.
void put_iq1(uint32_t grid, float delta, float scale, float* out) {
  for (int i = 0; i < 8; ++i) {
    out[i] = scale * (static_cast<float>((grid >> (2 * i)) & 3) - 1.0f + delta);
  }
}

/// The 4-bit scale of sub-block `j` of 16, two a byte.
uint32_t four_bits(const uint8_t* packed, int j) {
  return (static_cast<uint32_t>(packed[j / 2]) >> (j % 2 * 4)) & 15u;
}

float iq2_scale(float scale, uint32_t sub) {
  return scale * (0.5f + static_cast<float>(sub)) * 0.25f;
}

}  // namespace

// [f16 scale] then per 32 weights [4 codes of 8 bits][4 x 7 sign bits, 4 bits of scale]
void dequantise_iq2_xxs(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int j = 0; j < 8; ++j) {
    const uint8_t* codes = block + 2 + 8 * j;
    const uint32_t packed = load_u32(codes + 4);
    const float sub_scale = iq2_scale(scale, packed >> 28);
    for (int i = 0; i < 4; ++i) {
      put_iq2(kGridIq2Xxs[codes[i]], even_signs((packed >> (7 * i)) & 127), sub_scale,
              out + 32 * j + 8 * i);
    }
  }
}

// [f16 scale][32 x (9 bits of code, 7 sign bits)][16 x 4 bits of scale], sub-blocks of 16
void dequantise_iq2_xs(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < 32; ++i) {
    const uint32_t packed = load_u16(block + 2 + 2 * i);
    const float sub_scale = iq2_scale(scale, four_bits(block + 66, i / 2));
    put_iq2(kGridIq2Xs[packed & 511], even_signs(packed >> 9), sub_scale, out + 8 * i);
  }
}

// [f16 scale][32 low bytes of codes][32 sign bytes][32 x 2 high bits][16 x 4 bits of scale]
void dequantise_iq2_s(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const uint8_t* codes = block + 2;
  const uint8_t* signs = block + 34;
  const uint8_t* high = block + 66;
  for (int i = 0; i < 32; ++i) {
    const uint32_t code = codes[i] | ((static_cast<uint32_t>(high[i / 4]) >> (i % 4 * 2)) & 3u)
                                         << 8;
    const float sub_scale = iq2_scale(scale, four_bits(block + 74, i / 2));
    put_iq2(kGridIq2S[code], signs[i], sub_scale, out + 8 * i);
  }
}

// [f16 scale][64 codes of 8 bits][8 x (4 x 7 sign bits, 4 bits of scale)], sub-blocks of 32
void dequantise_iq3_xxs(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int j = 0; j < 8; ++j) {
    const uint32_t packed = load_u32(block + 66 + 4 * j);
    const float sub_scale = scale * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
    for (int i = 0; i < 4; ++i) {
      const uint8_t* codes = block + 2 + 8 * j + 2 * i;
      const uint32_t grid = kGridIq3Xxs[codes[0]] | uint32_t{kGridIq3Xxs[codes[1]]} << 12;
      put_iq3<level_iq3_xxs>(grid, even_signs((packed >> (7 * i)) & 127), sub_scale,
                             out + 32 * j + 8 * i);
    }
  }
}

// [f16 scale][64 low bytes of codes][64 ninth bits][32 sign bytes][8 x 4 bits of scale]
void dequantise_iq3_s(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const uint8_t* codes = block + 2;
  const uint8_t* high = block + 66;
  const uint8_t* signs = block + 74;
  const auto grid_of = [&](int i) {
    const uint32_t ninth = (static_cast<uint32_t>(high[i / 8]) >> (i % 8)) & 1u;
    return uint32_t{kGridIq3S[codes[i] | ninth << 8]};
  };
  for (int i = 0; i < 32; ++i) {
    const uint32_t sub = four_bits(block + 106, i / 4);
    const float sub_scale = scale * static_cast<float>(1 + 2 * sub);
    put_iq3<level_iq3_s>(grid_of(2 * i) | grid_of(2 * i + 1) << 12, signs[i], sub_scale,
                         out + 8 * i);
  }
}

// [f16 scale][32 low bytes of codes][8 x (4 x 3 high bits, 3 bits of scale, sign of the shift)]
void dequantise_iq1_s(const uint8_t* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int j = 0; j < 8; ++j) {
    const uint32_t packed = load_u16(block + 34 + 2 * j);
    const float sub_scale = scale * static_cast<float>(2 * ((packed >> 12) & 7) + 1);
    const float delta = packed & 0x8000 ? -0.125f : 0.125f;
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = block[2 + 4 * j + i] | ((packed >> (3 * i)) & 7) << 8;
      put_iq1(kGridIq1[code], delta, sub_scale, out + 32 * j + 8 * i);
    }
  }
}

// [32 low bytes of codes][32 x (3 high bits, sign of the shift)][4 x (4 x 3 bits of scale, 4 bits)]
// The four last groups of 4 bits are the f16 scale; sub-blocks of 16.
void dequantise_iq1_m(const uint8_t* block, float* out) {
  const uint8_t* high = block + 32;
  const uint8_t* scales = block + 48;
  uint32_t half = 0;
  for (int j = 0; j < 4; ++j)
    half |= static_cast<uint32_t>(load_u16(scales + 2 * j)) >> 12 << (4 * j);
  const float scale = f16_to_f32(static_cast<uint16_t>(half));
  for (int i = 0; i < 32; ++i) {
    const int sub_block = i / 2;
    const uint32_t sub =
        static_cast<uint32_t>(load_u16(scales + sub_block / 4 * 2)) >> (sub_block % 4 * 3) & 7;
    const float sub_scale = scale * static_cast<float>(2 * sub + 1);
    const uint32_t packed = four_bits(high, i);
    const float delta = packed & 8 ? -0.125f : 0.125f;
    put_iq1(kGridIq1[block[i] | (packed & 7) << 8], delta, sub_scale, out + 8 * i);
  }
}

}  // namespace kernels
