// Packed activations: plain data.
//
// ActivationFormat::kQ8_32, for types whose own blocks are 32 weights: element i of a block stands
// for x[i] * scale. Such types pay a float multiplication every 32 weights anyway, so a scale of
// their own costs nothing and no quiet block loses bits to a loud neighbour.
//
// ActivationFormat::kQ8, one column = blocks of 256 elements: element i of sub-block j (32
// elements) stands for x[i] * 2^shift[j] * scale: quiet sub-blocks keep up to three bits more than
// one scale per 256 would give them. The last block of a column may stand for 32 to 224 elements;
// what lies behind them is zero.
//
//   offset 0     256          272           304       336     340       372   384
//          x     sums_of_32   sums_of_16    shift     scale   starts    zero
//          int8  int16 pairs  int16 pairs   uint32    float   int32
//
// Sums are those of x, already shifted (32 * 127 * 2^3 fits int16: that is why the shift ends at
// 3). They meet the mins of Q4_K and the scales of Q6_K in pairs of int16, in the order in which a
// register with four codes per row splits into even and odd bytes: (0,2) (1,3) (4,6) (5,7) …
// Starts are not shifted, because they meet codes before their scales.
//
// x and sums are broadcast one 32-bit word at a time, so blocks need no alignment for themselves;
// whole cache lines keep two columns from sharing one.
#pragma once

#include <cstdint>

namespace kernels {

inline constexpr int kBlockWeights = 256;
inline constexpr int kSubBlockWeights = 32;

struct ActivationBlock {
  int8_t x[kBlockWeights];  // -127 … 127
  int16_t sums_of_32[8];    // [pair order]
  int16_t sums_of_16[16];   // [pair order]
  uint32_t shift[8];        // 0 … 3
  float scale;              // NaN if an element was not finite: so become all products
  int32_t starts[8];        // -128 * sum of x of each 32: takes the +128 out of signed codes
  uint32_t zero[3];
};
static_assert(sizeof(ActivationBlock) == 384);

struct ActivationBlock32 {
  int8_t x[kSubBlockWeights];  // -127 … 127
  int32_t start;               // -128 * sum of x: takes the +128 out of signed codes
  float scale;                 // NaN if an element was not finite
};
static_assert(sizeof(ActivationBlock32) == 40);

/// Index of value j in pair order.
constexpr int pair_order(int j) {
  return j / 4 * 4 + j % 2 * 2 + j / 2 % 2;
}

}  // namespace kernels
