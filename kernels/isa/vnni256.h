// Byte products by VNNI in registers of eight lanes. What each operation means: vocabulary.h; the
// rest of them: ymm.h.
//
// One source for two encodings of the same instructions: Evex (AVX-512 VNNI and VL, 32 registers)
// and Vex (AVX-VNNI, 16 registers, for CPUs without AVX-512). The flags that a file is compiled
// with say which one the compiler writes. Any thread; the CPU must have the extensions, and those
// of ymm.h.
#pragma once

#include "kernels/isa/ymm.h"

namespace kernels::isa {

struct Evex {};
struct Vex {};

template <class Encoding>
struct Vnni256 : Ymm<Vnni256<Encoding>> {
  static constexpr int kColumns = 4;
  using Bytes = __m256i;
  using I32 = __m256i;
  using SumU4 = __m256i;
  using SumU6 = __m256i;
  using SumS8 = __m256i;
  using Scale = __m256i;

  static SumU4 zero_u4() { return _mm256_setzero_si256(); }
  static SumU4 dot_u4(SumU4 sum, Bytes w, Bytes x) { return dot(sum, w, x); }
  static I32 scale_u4(SumU4 sum, Scale scale) { return _mm256_mullo_epi32(sum, scale); }
  static I32 sum_u4(SumU4 sum) { return sum; }
  static SumU6 zero_u6() { return _mm256_setzero_si256(); }
  template <int step>
  static SumU6 dot_u6(SumU6 sum, Bytes w, Bytes x) {
    return dot(sum, w, x);
  }
  static I32 scale_u6(SumU6 sum, Scale scale) { return _mm256_mullo_epi32(sum, scale); }
  static I32 sum_u6(SumU6 sum) { return sum; }
  static SumS8 start_s8(const int32_t* start) { return _mm256_set1_epi32(*start); }
  static SumS8 dot_s8(SumS8 sum, Bytes w, Bytes x) { return dot(sum, w, x); }
  static constexpr int kAddedToS7 = 128;
  static SumS8 dot_s7(SumS8 sum, Bytes w, Bytes x) { return dot(sum, w, x); }
  static I32 sum_s8(SumS8 sum) { return sum; }
  static I32 scale_i32(I32 a, Scale scale) { return _mm256_mullo_epi32(a, scale); }
  static I32 dot_i16(I32 sum, Bytes w, Bytes x) { return _mm256_dpwssd_epi32(sum, w, x); }
  static Scale scale_of(Bytes codes, int j) {
    return _mm256_and_si256(_mm256_srlv_epi32(codes, _mm256_set1_epi32(8 * j)),
                            _mm256_set1_epi32(0xff));
  }
  static Scale scale_of_signed(Bytes codes, int j) {
    return _mm256_srai_epi32(_mm256_sllv_epi32(codes, _mm256_set1_epi32(24 - 8 * j)), 24);
  }

 private:
  static I32 dot(I32 sum, Bytes w, Bytes x) { return _mm256_dpbusd_epi32(sum, w, x); }
};

}  // namespace kernels::isa
