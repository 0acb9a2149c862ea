// IQ4_XS: blocks of 256 weights, w = d * scale[k / 32] * value[code] with the sixteen values of
// IQ4_NL, scales -32 … 31 and d in float16.
//
// value = d * s.
#pragma once

#include "kernels/blocks_k.h"
#include "kernels/format_iq4_nl.h"

namespace kernels {

struct alignas(64) IQ4_XSBlock {
  uint16_t d[kPanelRows];  // float16 scale of the scales
  uint16_t zero[kPanelRows];
  int8_t scales[2][kPanelRows][4];     // [8 sub-blocks]
  uint8_t codes[8][4][kPanelRows][4];  // as in Q4_K
};
static_assert(sizeof(IQ4_XSBlock) == 16 * 136 + 64);

struct IQ4_XS {
  static constexpr Layout kLayout = Layout::kIQ4_XS;
  static constexpr TensorType kType = TensorType::kIQ4_XS;
  static constexpr const char* kName = "iq4_xs";
  using Block = IQ4_XSBlock;
  static constexpr int kSubBlock = 32, kCodeMax = 127, kScaleMax = 32;
  template <class V>
  using Dot = DotS7<V>;
  template <class V>
  using Codes = TableCodes<V, Iq4Codes<V>>;

  template <class V>
  struct Scales {
    typename V::F32 d;
    typename V::Bytes fours[2];  // int8

    [[gnu::always_inline]] void read(const Lanes& lanes) {
      d = V::load_f16(lanes.at(offsetof(Block, d), 2));
      for (size_t i = 0; i < 2; ++i) {
        fours[i] = V::load(lanes.at(offsetof(Block, scales) + 64 * i, 4));
      }
    }
    [[gnu::always_inline]] typename V::Scale of(int j) const {
      return V::scale_of_signed(fours[j / 4], j % 4);
    }
    [[gnu::always_inline]] typename V::F32 value(typename V::I32 s, const ActivationBlock&) const {
      return V::mul(d, V::to_f32(s));
    }
  };

  /// File block: float16 d, high two bits of 8 scales, their low four, 32 added; codes, sixteen
  /// bytes for each 32 weights as in Q4_0.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    Block& block = reinterpret_cast<Block*>(panel)[b];
    copy_halves(quad, 0, block.d + r);
    std::memset(block.zero + r, 0, 8);
    for (size_t i = 0; i < 4; ++i) {
      const auto high = load_as<uint16_t>(quad.row[i] + 2);
      const auto low = load_as<uint32_t>(quad.row[i] + 4);
      for (size_t j = 0; j < 8; ++j) {
        const int scale = static_cast<int>((low >> 4 * j & 15u) | (high >> 2 * j & 3u) << 4);
        block.scales[j / 4][r + i][j % 4] = static_cast<int8_t>(scale - 32);
      }
    }
    for (size_t j = 0; j < 8; ++j) {
      Words words[4];
      load_words(quad, 8 + 16 * j, words);
      for (size_t v = 0; v < 4; ++v) store_as(block.codes[j][v][r], words[v]);
    }
  }
};
using FormatIQ4_XS = FormatK<IQ4_XS>;

}  // namespace kernels
