// Q4_K: blocks of 256 weights, w = d * scale[k / 32] * code - dmin * min[k / 32] with codes of four
// bits, scales and mins of six, d and dmin in float16.
//
// value = d * s - dmin * m, where m = sum of min_j * sum(x)_j; |m| <= 63 * 127 * 256 * 2^3.
#pragma once

#include "kernels/blocks_k.h"
#include "kernels/codes.h"

namespace kernels {

/// The head of a block, which Q5_K has, too.
struct SixBitHead {
  uint16_t d[kPanelRows];     // float16 scale of the scales
  uint16_t dmin[kPanelRows];  // float16 scale of the mins
  /// 16 codes of six bits per row. Low six bits: scales 0-3, scales 4-7, mins 0-3; the top two bits
  /// of the three make mins 4-7.
  uint8_t packed[3][kPanelRows][4];

  /// File: float16 d, dmin; 12 bytes, of which bytes 0-3 hold scales 0-3 and bytes 4-7 mins 0-3 in
  /// their low six bits, and scales and mins 4-7 are split over nibbles of bytes 8-11 and the top
  /// bits of bytes 0-7.
  void pack(const Quad& quad, size_t r) {
    copy_halves(quad, 0, d + r);
    copy_halves(quad, 2, dmin + r);
    const Words scale = load_word(quad, 4), min = load_word(quad, 8), both = load_word(quad, 12);
    const Words scale4 = (both & 0x0f0f0f0fu) | (scale >> 6 & 0x03030303u) << 4;
    const Words min4 = (both >> 4 & 0x0f0f0f0fu) | (min >> 6 & 0x03030303u) << 4;
    store_as(packed[0][r], (scale & 0x3f3f3f3fu) | (min4 & 0x03030303u) << 6);
    store_as(packed[1][r], scale4 | (min4 >> 2 & 0x03030303u) << 6);
    store_as(packed[2][r], (min & 0x3f3f3f3fu) | (min4 >> 4 & 0x03030303u) << 6);
  }
};

struct alignas(64) Q4_KBlock {
  SixBitHead head;
  /// Sub-block j, vector v: low nibbles k = 32 j + 4 v …, high nibbles k = 32 j + 16 + 4 v …
  uint8_t codes[8][4][kPanelRows][4];
};
static_assert(sizeof(Q4_KBlock) == 16 * 144);

/// Scales and mins of kLanes rows, ready for use.
template <class V>
struct SixBitScales {
  typename V::Scale scales[8];
  typename V::Bytes mins[4];  // int16 pairs in the order of sums_of_32
  typename V::F32 d, dmin;

  [[gnu::always_inline]] void read(const Lanes& lanes) {
    constexpr size_t kPacked = offsetof(SixBitHead, packed);
    const auto a = V::load(lanes.at(kPacked, 4)), b = V::load(lanes.at(kPacked + 64, 4));
    const auto c = V::load(lanes.at(kPacked + 128, 4));
    const auto scales_low = V::and_bytes(a, 63), scales_high = V::and_bytes(b, 63);
    const auto mins_low = V::and_bytes(c, 63);
    const auto mins_high = V::or_bytes(V::or_bytes(V::and_bytes(V::template shr_bits<6>(a), 0x03),
                                                   V::and_bytes(V::template shr_bits<4>(b), 0x0c)),
                                       V::and_bytes(V::template shr_bits<2>(c), 0x30));
    d = V::load_f16(lanes.at(offsetof(SixBitHead, d), 2));
    dmin = V::load_f16(lanes.at(offsetof(SixBitHead, dmin), 2));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      scales[j] = V::scale_of(scales_low, j);
      scales[j + 4] = V::scale_of(scales_high, j);
    }
    mins[0] = V::even16(mins_low);
    mins[1] = V::odd16(mins_low);
    mins[2] = V::even16(mins_high);
    mins[3] = V::odd16(mins_high);
  }
  [[gnu::always_inline]] typename V::Scale of(int j) const {
    return scales[j];
  }
  [[gnu::always_inline]] typename V::F32 value(typename V::I32 s, const ActivationBlock& x) const {
    auto m = V::set_i32(0);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) m = V::dot_i16(m, mins[i], V::splat(&x.sums_of_32[2 * i]));
    return V::fnma(dmin, V::to_f32(m), V::mul(d, V::to_f32(s)));
  }
};

/// 32 bytes of a file block hold the nibbles of two sub-blocks; words of four rows.
struct NibblePair {
  Words first[8], second[8];
  NibblePair(const Quad& quad, size_t offset) {
    Words both[8];
    load_words(quad, offset, both);
    load_words(quad, offset + 16, both + 4);
    for (size_t w = 0; w < 8; ++w) {
      first[w] = both[w] & 0x0f0f0f0fu;
      second[w] = both[w] >> 4 & 0x0f0f0f0fu;
    }
  }
  /// Words w and w + 4 of a sub-block share a vector.
  static void store(const Words* words, uint8_t (*vectors)[kPanelRows][4], size_t r) {
    for (size_t v = 0; v < 4; ++v) store_as(vectors[v][r], words[v] | words[v + 4] << 4);
  }
};

struct Q4_K {
  static constexpr Layout kLayout = Layout::kQ4_K;
  static constexpr TensorType kType = TensorType::kQ4_K;
  static constexpr const char* kName = "q4_k";
  using Block = Q4_KBlock;
  static constexpr int kSubBlock = 32, kCodeMax = 15, kScaleMax = 63;
  template <class V>
  using Dot = DotU4<V>;
  template <class V>
  using Codes = NibbleCodes<V>;
  template <class V>
  using Scales = SixBitScales<V>;

  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    block.head.pack(quad, r);
    for (size_t pair = 0; pair < 4; ++pair) {
      const NibblePair nibbles(quad, 16 + 32 * pair);
      NibblePair::store(nibbles.first, block.codes[2 * pair], r);
      NibblePair::store(nibbles.second, block.codes[2 * pair + 1], r);
    }
  }
};
using FormatQ4_K = FormatK<Q4_K>;

}  // namespace kernels
