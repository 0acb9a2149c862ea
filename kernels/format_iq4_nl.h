// IQ4_NL: blocks of 32 weights, w = d * value[code] with codes of four bits that stand for sixteen
// signed bytes, closer together near zero, and d in float16.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

/// The sixteen values, 128 added. IQ4_XS has the same.
template <class V>
struct Iq4Codes {
  static constexpr uint8_t kCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                         129, 141, 153, 166, 181, 197, 217, 241};
};

struct IQ4_NL {
  static constexpr Layout kLayout = Layout::kIQ4_NL;
  static constexpr TensorType kType = TensorType::kIQ4_NL;
  static constexpr const char* kName = "iq4_nl";
  using Group = Group32<1, 4>;
  static_assert(sizeof(Group) == 16 * 2 * 18);
  static constexpr int kCodeMin = -127, kCodeMax = 113, kOffset = 128;
  template <class V>
  using Dot = DotS8<V>;
  template <class V>
  using Codes = TableCodes<V, Iq4Codes<V>>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_f16(p);
  }

  /// File block: float16 d, sixteen bytes of codes as in Q4_0.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    copy_halves(quad, 0, Group::field_at(panel, b, 0, r));
    Words words[4];
    load_words(quad, 2, words);
    store_words(words, Group::codes_at(panel, b, r));
  }
};
using FormatIQ4_NL = Format32<IQ4_NL>;

}  // namespace kernels
