// The vocabulary in AVX-512 (F, BW, DQ, VL, VNNI): registers of sixteen lanes, a whole vector of a
// panel. What each operation means: vocabulary.h.
//
// Products take their activations from memory, spread over the lanes by the instruction itself; gcc
// 12 would load them with an instruction of their own (Q4_K, 4 columns: 151 GMAC/s, so 175).
//
// Any thread; the CPU must have the extensions, and those of ymm.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace kernels::isa {

struct Avx512Vnni {
  static constexpr int kLanes = 16;
  static constexpr int kTogether = 1;
  static constexpr int kColumns = 8;
  using Bytes = __m512i;
  using SumU4 = __m512i;
  using SumU6 = __m512i;
  using SumS8 = __m512i;
  using Scale = __m512i;
  using Table = __m512i;
  using I32 = __m512i;
  using F32 = __m512;

  // Bytes.
  static Bytes load(const void* p) { return _mm512_load_si512(p); }
  /// A word in memory that stands for itself in all lanes, until somebody wants it in a register.
  struct Word {
    const void* p;
    operator Bytes() const {
      int v;
      std::memcpy(&v, p, sizeof v);
      return _mm512_set1_epi32(v);
    }
  };
  static Word splat(const void* p) { return {p}; }
  static Bytes and_bytes(Bytes a, uint8_t mask) {
    return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  template <int n>
  static Bytes shr_bits(Bytes a) {
    return _mm512_srli_epi32(a, n);
  }
  template <int n>
  static Bytes shl_bits(Bytes a) {
    return _mm512_slli_epi32(a, n);
  }
  static Table table16(const uint8_t* bytes) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static Bytes look_up(Table table, Bytes codes) { return _mm512_shuffle_epi8(table, codes); }
  static Bytes even16(Bytes a) { return _mm512_and_si512(a, _mm512_set1_epi32(0x00ff00ff)); }
  static Bytes odd16(Bytes a) { return _mm512_srli_epi16(a, 8); }
  static Bytes even16_signed(Bytes a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
  static Bytes odd16_signed(Bytes a) { return _mm512_srai_epi16(a, 8); }

  // Dot products of four.
  static SumU4 zero_u4() { return _mm512_setzero_si512(); }
  static SumU4 dot_u4(SumU4 sum, Bytes w, Word x) { return dot(sum, w, x); }
  /// The same where every lane has an x of its own.
  static SumU4 dot_u4(SumU4 sum, Bytes w, Bytes x) { return _mm512_dpbusd_epi32(sum, w, x); }
  static I32 scale_u4(SumU4 sum, Scale scale) { return _mm512_mullo_epi32(sum, scale); }
  static I32 sum_u4(SumU4 sum) { return sum; }
  static SumU6 zero_u6() { return _mm512_setzero_si512(); }
  template <int step>
  static SumU6 dot_u6(SumU6 sum, Bytes w, Word x) {
    return dot(sum, w, x);
  }
  static I32 scale_u6(SumU6 sum, Scale scale) { return _mm512_mullo_epi32(sum, scale); }
  static I32 sum_u6(SumU6 sum) { return sum; }
  static SumS8 start_s8(const int32_t* start) { return _mm512_set1_epi32(*start); }
  static SumS8 dot_s8(SumS8 sum, Bytes w, Word x) { return dot(sum, w, x); }
  static constexpr int kAddedToS7 = 128;
  static SumS8 dot_s7(SumS8 sum, Bytes w, Word x) { return dot(sum, w, x); }
  static I32 sum_s8(SumS8 sum) { return sum; }
  static I32 scale_i32(I32 a, Scale scale) { return _mm512_mullo_epi32(a, scale); }
  static I32 dot_i16(I32 sum, Bytes w, Bytes x) { return _mm512_dpwssd_epi32(sum, w, x); }
  static Scale scale_of(Bytes codes, int j) {
    return _mm512_and_si512(_mm512_srlv_epi32(codes, _mm512_set1_epi32(8 * j)),
                            _mm512_set1_epi32(0xff));
  }
  static Scale scale_of_signed(Bytes codes, int j) {
    return _mm512_srai_epi32(_mm512_sllv_epi32(codes, _mm512_set1_epi32(24 - 8 * j)), 24);
  }

  // Integers.
  static I32 set_i32(int32_t a) { return _mm512_set1_epi32(a); }
  static I32 add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
  static I32 sub(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
  static I32 and_i32(I32 a, I32 b) { return _mm512_and_si512(a, b); }
  static I32 max_i32(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
  static I32 shl_lanes(I32 a, Bytes n) { return _mm512_sllv_epi32(a, n); }
  template <int n>
  static I32 shl(I32 a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static I32 sar(I32 a) {
    return _mm512_srai_epi32(a, n);
  }
  static int32_t reduce_add(I32 a) { return _mm512_reduce_add_epi32(a); }
  static int32_t reduce_max(I32 a) { return _mm512_reduce_max_epi32(a); }
  static I32 load_i8(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static void store_i8(void* p, I32 a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }

  // Floats.
  static F32 set_f32(float a) { return _mm512_set1_ps(a); }
  static F32 splat_f32(const void* p) { return _mm512_set1_ps(*static_cast<const float*>(p)); }
  static F32 load_f32(const void* p) { return _mm512_loadu_ps(p); }
  static F32 load_f16(const void* p) { return _mm512_cvtph_ps(load_u16(p)); }
  static F32 load_bf16(const void* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_u16(p)), 16));
  }
  static void store_f32(void* p, F32 a) { _mm512_storeu_ps(p, a); }
  static void store_f16_clamped(void* p, F32 a) {
    const __m512 sign = _mm512_and_ps(a, _mm512_set1_ps(-0.0f));
    const __m512 nan = _mm512_or_ps(sign, from_bits(_mm512_set1_epi32(0x7fc00000)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    a = _mm512_max_ps(_mm512_set1_ps(-65504.0f), _mm512_min_ps(_mm512_set1_ps(65504.0f), a));
    a = _mm512_mask_mov_ps(a, is_nan, nan);  // one NaN, whatever came in
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  static F32 to_f32(I32 a) { return _mm512_cvtepi32_ps(a); }
  static I32 round_i32(F32 a) { return _mm512_cvtps_epi32(a); }
  static I32 bits(F32 a) { return _mm512_castps_si512(a); }
  static F32 from_bits(I32 a) { return _mm512_castsi512_ps(a); }
  static F32 add_f32(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  static F32 sub_f32(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  static F32 max_f32(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  static F32 min_f32(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 fnma(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }
  static float reduce_add_f32(F32 a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  static float reduce_max_f32(F32 a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }

 private:
  struct [[gnu::may_alias]] Four {
    int32_t value;
  };
  [[gnu::always_inline]] static I32 dot(I32 sum, Bytes w, Word x) {
    asm("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(sum) : "m"(*static_cast<const Four*>(x.p)), "v"(w));
    return sum;
  }
  static __m256i load_u16(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
};

}  // namespace kernels::isa
