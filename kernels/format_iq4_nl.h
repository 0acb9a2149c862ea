// IQ4_NL: blocks of 32 weights, w = d * value[code] with codes of four bits that stand for sixteen
// signed bytes, closer together near zero, and d in float16.
#pragma once

#include "kernels/blocks_32.h"
#include "kernels/codes.h"

namespace kernels {

/// A value as V's dot_s7 takes it.
template <class V>
constexpr uint8_t as_s7(int value) {
  return static_cast<uint8_t>(value + V::kAddedToS7);
}

/// The sixteen values. IQ4_XS has the same.
template <class V>
struct Iq4Codes {
  static constexpr uint8_t kCodes[16] = {
      as_s7<V>(-127), as_s7<V>(-104), as_s7<V>(-83), as_s7<V>(-65), as_s7<V>(-49), as_s7<V>(-35),
      as_s7<V>(-22),  as_s7<V>(-10),  as_s7<V>(1),   as_s7<V>(13),  as_s7<V>(25),  as_s7<V>(38),
      as_s7<V>(53),   as_s7<V>(69),   as_s7<V>(89),  as_s7<V>(113)};
};

struct IQ4_NL {
  static constexpr Layout kLayout = Layout::kIQ4_NL;
  static constexpr TensorType kType = TensorType::kIQ4_NL;
  static constexpr const char* kName = "iq4_nl";
  using Group = Group32<1, 4>;
  static_assert(sizeof(Group) == 16 * 2 * 18);
  static constexpr int kCodeMin = -127, kCodeMax = 113, kOffset = 128;
  template <class V>
  using Dot = DotS7<V>;
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
