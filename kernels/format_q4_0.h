// Q4_0: blocks of 32 weights, w = d * (code - 8) with codes of four bits and d in float16.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

struct Q4_0 {
  static constexpr Layout kLayout = Layout::kQ4_0;
  static constexpr TensorType kType = TensorType::kQ4_0;
  static constexpr const char* kName = "q4_0";
  using Group = Group32<1, 4>;
  static_assert(sizeof(Group) == 16 * 2 * 18);
  static constexpr int kCodeMin = -8, kCodeMax = 7, kOffset = 8;
  template <class V>
  using Dot = DotU4<V>;
  template <class V>
  using Codes = NibbleCodes<V>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_f16(p);
  }

  /// File block: float16 d, sixteen bytes of two codes each, those of the first 16 weights below.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    copy_halves(quad, 0, Group::field_at(panel, b, 0, r));
    Words words[4];
    load_words(quad, 2, words);
    store_words(words, Group::codes_at(panel, b, r));
  }
};
using FormatQ4_0 = Format32<Q4_0>;

}  // namespace kernels
