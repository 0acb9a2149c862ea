// Weight panels: 16 rows side by side, plain data.
//
// One vector is 64 bytes = 16 lanes of 4 bytes; lane r belongs to row r and holds four consecutive
// k. An ISA with registers of 8 lanes reads half a vector (byte offset 4 * first row), the scalar
// one a lane: the same bytes serve all of them. A panel is one stream in k order.
//
//   F32           F16, BF16                Q8_0, MXFP4             Q4_K, Q6_K
//   [k][16]       [k][16] of 2 bytes       [k / 64] …Group         [k / 256] …Block
//   4 bytes each  padded to whole vectors  last one may be half
//
// Nothing is added to the bytes of the file but the padding of Q6_K (1 %) and a second byte for the
// scales of MXFP4 (6 %), which would else take integer work for every 32 weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace kernels {

/// Two Q8_0 blocks of each row, so that all parts stay 64-byte aligned. If k / 32 is odd, the last
/// group ends after q[0].
struct alignas(64) Q8_0Group {
  uint16_t d[2][kPanelRows];       // float16 scales
  uint8_t q[2][8][kPanelRows][4];  // code + 128: dpbusd wants its weights unsigned
};
static_assert(sizeof(Q8_0Group) == 16 * 2 * 34);
inline constexpr size_t kQ8_0HalfGroupBytes = 64 + 512;

/// Two MXFP4 blocks of each row. If k / 32 is odd, the last group ends after q[0].
struct alignas(64) MXFP4Group {
  uint16_t d[2][kPanelRows];  // half of 2^(e - 127) in bfloat16, which holds it exactly
  /// Vector v: low nibbles k = 4 v …, high nibbles k = 16 + 4 v …
  uint8_t q[2][4][kPanelRows][4];
};
static_assert(sizeof(MXFP4Group) == 16 * 2 * 18);
inline constexpr size_t kMXFP4HalfGroupBytes = 64 + 256;

struct alignas(64) Q4_KBlock {
  uint16_t d[kPanelRows];     // float16 scale of the scales
  uint16_t dmin[kPanelRows];  // float16 scale of the mins
  /// 16 codes of six bits per row. Low six bits: scales 0-3, scales 4-7, mins 0-3; the top two bits
  /// of the three make mins 4-7.
  uint8_t codes[3][kPanelRows][4];
  /// Sub-block j, vector v: low nibbles k = 32 j + 4 v …, high nibbles k = 32 j + 16 + 4 v …
  uint8_t q[8][4][kPanelRows][4];
};
static_assert(sizeof(Q4_KBlock) == 16 * 144);

struct alignas(64) Q6_KBlock {
  uint16_t d[kPanelRows];  // float16 scale of the scales
  uint16_t zero[kPanelRows];
  int8_t scales[4][kPanelRows][4];  // [16 sub-blocks of 16, four to a vector]
  struct {
    /// Low four bits: vector u holds k = 4 u … and 8 + 4 u … of the sub-block.
    uint8_t low[2][kPanelRows][4];
    /// High two bits: bits 2 v and 2 v + 1 belong to k = 4 v … of the sub-block.
    uint8_t high[kPanelRows][4];
  } codes[16];
};
static_assert(sizeof(Q6_KBlock) == 16 * 210 + 32);

}  // namespace kernels
