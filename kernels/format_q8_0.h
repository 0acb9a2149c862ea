// Q8_0: blocks of 32 weights, w = d * code with code -128 … 127 and d in float16.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

using Q8_0Group = Group32<1, 8>;  // code + 128: dpbusd wants its weights unsigned
static_assert(sizeof(Q8_0Group) == 16 * 2 * 34);

struct Q8_0 {
  static constexpr Layout kLayout = Layout::kQ8_0;
  static constexpr TensorType kType = TensorType::kQ8_0;
  static constexpr const char* kName = "q8_0";
  using Group = Q8_0Group;
  static constexpr int kCodeMin = -128, kCodeMax = 127, kOffset = 128;
  template <class V>
  using Dot = DotS8<V>;
  template <class V>
  using Codes = ByteCodes<V>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_f16(p);
  }

  /// File block: float16 d, int8 code[32].
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    copy_halves(quad, 0, Group::field_at(panel, b, 0, r));
    std::byte* q = Group::codes_at(panel, b, r);
    for (size_t part = 0; part < 2; ++part) {
      Words words[4];
      load_words(quad, 2 + 16 * part, words);
      for (Words& word : words) word ^= 0x80808080u;
      store_words(words, q + 256 * part);
    }
  }
};
using FormatQ8_0 = Format32<Q8_0>;

}  // namespace kernels
