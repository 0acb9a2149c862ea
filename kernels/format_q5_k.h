// Q5_K: as Q4_K with codes of five bits.
#pragma once

#include "kernels/format_q4_k.h"

namespace kernels {

struct alignas(64) Q5_KBlock {
  SixBitHead head;
  struct {
    uint8_t fifth[kPanelRows][4];       // bit n: that of k = 4 n …
    uint8_t nibbles[4][kPanelRows][4];  // as in Q4_K
  } codes[8];
};
static_assert(sizeof(Q5_KBlock) == 16 * 176);

struct Q5_K {
  static constexpr Layout kLayout = Layout::kQ5_K;
  static constexpr TensorType kType = TensorType::kQ5_K;
  static constexpr const char* kName = "q5_k";
  using Block = Q5_KBlock;
  static constexpr int kSubBlock = 32, kCodeMax = 31, kScaleMax = 63;
  template <class V>
  using Dot = DotU6<V>;
  template <class V>
  using Codes = FiveBitCodes<V>;
  template <class V>
  using Scales = SixBitScales<V>;

  /// File block: as Q4_K with 32 bytes of fifth bits before the codes; bit j of byte i is that of
  /// weight i of sub-block j.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    block.head.pack(quad, r);
    Words fifth[8];
    load_words(quad, 16, fifth);
    load_words(quad, 32, fifth + 4);
    for (uint32_t j = 0; j < 8; ++j) {
      Words bits = {};
      for (uint32_t n = 0; n < 8; ++n) bits |= (fifth[n] >> j & 0x01010101u) << n;
      store_as(block.codes[j].fifth[r], bits);
    }
    for (size_t pair = 0; pair < 4; ++pair) {
      const NibblePair nibbles(quad, 48 + 32 * pair);
      NibblePair::store(nibbles.first, block.codes[2 * pair].nibbles, r);
      NibblePair::store(nibbles.second, block.codes[2 * pair + 1].nibbles, r);
    }
  }
};
using FormatQ5_K = FormatK<Q5_K>;

}  // namespace kernels
