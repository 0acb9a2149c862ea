// AVX2 without byte products of its own: pairs of int16 by maddubs. What each operation means:
// vocabulary.h; the rest of them: ymm.h.
//
// Any thread; the CPU must have AVX2, FMA and F16C.
#pragma once

#include "kernels/isa/ymm.h"

namespace kernels::isa {

struct Avx2 : Ymm<Avx2> {
  static constexpr int kColumns = 4;
  using SumU4 = __m256i;  // int16: eight steps of at most 2 * 15 * 127 stay below 2^15
  struct SumU6 {          // int16: two steps of at most 2 * 63 * 127 each stay below 2^15
    __m256i low, high;
  };
  using SumS8 = __m256i;
  using Scale = __m256i;  // int16, each scale twice

  static SumU4 zero_u4() { return _mm256_setzero_si256(); }
  static SumU4 dot_u4(SumU4 sum, Bytes w, Bytes x) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
  }
  static I32 scale_u4(SumU4 sum, Scale scale) { return _mm256_madd_epi16(sum, scale); }
  static I32 sum_u4(SumU4 sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  static SumU6 zero_u6() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  template <int step>
  static SumU6 dot_u6(SumU6 sum, Bytes w, Bytes x) {
    __m256i& part = step % 2 == 0 ? sum.low : sum.high;
    part = _mm256_add_epi16(part, _mm256_maddubs_epi16(w, x));
    return sum;
  }
  static I32 scale_u6(SumU6 sum, Scale scale) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum.low, scale), _mm256_madd_epi16(sum.high, scale));
  }
  static I32 sum_u6(SumU6 sum) { return scale_u6(sum, _mm256_set1_epi16(1)); }
  static SumS8 start_s8(const int32_t*) { return _mm256_setzero_si256(); }
  static SumS8 dot_s8(SumS8 sum, Bytes w, Bytes x) {
    // |w| times x with the sign of w: 2 * 128 * 127 fits int16, so nothing saturates.
    const __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static constexpr int kAddedToS7 = 0;
  static SumS8 dot_s7(SumS8 sum, Bytes w, Bytes x) {
    // |x|, made once for all rows, times w with the sign of x: -128 could not change its sign.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(w, x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static I32 sum_s8(SumS8 sum) { return sum; }
  static I32 scale_i32(I32 a, Scale scale) {
    return _mm256_mullo_epi32(a, _mm256_srai_epi32(scale, 16));  // of the two copies, the upper one
  }
  static I32 dot_i16(I32 sum, Bytes w, Bytes x) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
  }
  static Scale scale_of(Bytes codes, int j) { return pick_bytes<0>(codes, j); }
  static Scale scale_of_signed(Bytes codes, int j) {
    return _mm256_srai_epi16(pick_bytes<1>(codes, j), 8);
  }

 private:
  /// Byte j of each lane as byte `to` of both its int16 halves, zero beside it.
  template <int to>
  static Bytes pick_bytes(Bytes codes, int j) {
    constexpr int32_t kLane = 0x04040404, kBeside = to == 0 ? int32_t(0xff00ff00) : 0x00ff00ff;
    const __m256i beside = _mm256_set1_epi32(kBeside);  // negative: the shuffle reads it as zero
    const __m256i lanes =
        _mm256_setr_epi32(0, kLane, 2 * kLane, 3 * kLane, 0, kLane, 2 * kLane, 3 * kLane);
    const __m256i pick = _mm256_add_epi8(lanes, _mm256_set1_epi8(static_cast<char>(j)));
    return _mm256_shuffle_epi8(codes, _mm256_or_si256(pick, beside));
  }
};

}  // namespace kernels::isa
