// Q4_1: blocks of 32 weights, w = d * code + m with codes of four bits, d and m in float16.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

struct Q4_1 {
  static constexpr Layout kLayout = Layout::kQ4_1;
  static constexpr TensorType kType = TensorType::kQ4_1;
  static constexpr const char* kName = "q4_1";
  using Group = Group32<2, 4>;
  static_assert(sizeof(Group) == 16 * 2 * 20);
  static constexpr int kCodeMin = 0, kCodeMax = 15, kOffset = 0;
  template <class V>
  using Dot = DotU4<V>;
  template <class V>
  using Codes = NibbleCodes<V>;
  template <class V>
  static typename V::F32 load_field(const std::byte* p) {
    return V::load_f16(p);
  }

  /// File block: float16 d, float16 m, sixteen bytes of codes as in Q4_0.
  static void pack(const Quad& quad, size_t b, size_t r, std::byte* panel) {
    copy_halves(quad, 0, Group::field_at(panel, b, 0, r));
    copy_halves(quad, 2, Group::field_at(panel, b, 1, r));
    Words words[4];
    load_words(quad, 4, words);
    store_words(words, Group::codes_at(panel, b, r));
  }
};
using FormatQ4_1 = Format32<Q4_1>;

}  // namespace kernels
