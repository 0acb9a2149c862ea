// The vocabulary of registers of eight lanes, but for the products of bytes: what AVX2, FMA and
// F16C offer, for every instruction set of that width. What each operation means: vocabulary.h.
//
// Self names the instruction set that derives from it, so that no two of them share a function:
// each is compiled with its own flags. Any thread.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace kernels::isa {

template <class Self>
struct Ymm {
  static constexpr int kLanes = 8;
  static constexpr int kTogether = 2;
  using Bytes = __m256i;
  using Word = __m256i;
  using Table = __m256i;
  using I32 = __m256i;
  using F32 = __m256;

  // Bytes.
  static Bytes load(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
  static Bytes splat(const void* p) {
    int v;
    std::memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
  }
  static Bytes and_bytes(Bytes a, uint8_t mask) {
    return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  template <int n>
  static Bytes shr_bits(Bytes a) {
    return _mm256_srli_epi32(a, n);
  }
  template <int n>
  static Bytes shl_bits(Bytes a) {
    return _mm256_slli_epi32(a, n);
  }
  static Table table16(const uint8_t* bytes) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
  static Bytes look_up(Table table, Bytes codes) { return _mm256_shuffle_epi8(table, codes); }
  static Bytes even16(Bytes a) { return _mm256_and_si256(a, _mm256_set1_epi32(0x00ff00ff)); }
  static Bytes odd16(Bytes a) { return _mm256_srli_epi16(a, 8); }
  static Bytes even16_signed(Bytes a) { return _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8); }
  static Bytes odd16_signed(Bytes a) { return _mm256_srai_epi16(a, 8); }

  // Integers.
  static I32 set_i32(int32_t a) { return _mm256_set1_epi32(a); }
  static I32 add(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
  static I32 sub(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
  static I32 and_i32(I32 a, I32 b) { return _mm256_and_si256(a, b); }
  static I32 max_i32(I32 a, I32 b) { return _mm256_max_epi32(a, b); }
  static I32 shl_lanes(I32 a, Bytes n) { return _mm256_sllv_epi32(a, n); }
  template <int n>
  static I32 shl(I32 a) {
    return _mm256_slli_epi32(a, n);
  }
  template <int n>
  static I32 sar(I32 a) {
    return _mm256_srai_epi32(a, n);
  }
  static int32_t reduce_add(I32 a) {
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
  }
  static int32_t reduce_max(I32 a) {
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1)));
  }
  static I32 load_i8(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static void store_i8(void* p, I32 a) {
    const __m256i words = _mm256_packs_epi32(a, a);
    const __m256i bytes = _mm256_packs_epi16(words, words);
    const __m128i both =
        _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64(static_cast<__m128i*>(p), both);
  }

  // Floats.
  static F32 set_f32(float a) { return _mm256_set1_ps(a); }
  static F32 splat_f32(const void* p) { return _mm256_broadcast_ss(static_cast<const float*>(p)); }
  static F32 load_f32(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  static F32 load_f16(const void* p) { return _mm256_cvtph_ps(load_u16(p)); }
  static F32 load_bf16(const void* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_u16(p)), 16));
  }
  static void store_f32(void* p, F32 a) { _mm256_storeu_ps(static_cast<float*>(p), a); }
  static void store_f16_clamped(void* p, F32 a) {
    const __m256 sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f));
    const __m256 nan = _mm256_or_ps(sign, from_bits(_mm256_set1_epi32(0x7fc00000)));
    const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    a = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), a));
    a = _mm256_blendv_ps(a, nan, is_nan);  // one NaN, whatever came in
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  static F32 to_f32(I32 a) { return _mm256_cvtepi32_ps(a); }
  static I32 round_i32(F32 a) { return _mm256_cvtps_epi32(a); }
  static I32 bits(F32 a) { return _mm256_castps_si256(a); }
  static F32 from_bits(I32 a) { return _mm256_castsi256_ps(a); }
  static F32 add_f32(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 sub_f32(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
  static F32 max_f32(F32 a, F32 b) { return _mm256_max_ps(a, b); }
  static F32 min_f32(F32 a, F32 b) { return _mm256_min_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static F32 fnma(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
  static float reduce_add_f32(F32 a) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
  }
  static float reduce_max_f32(F32 a) {
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
  }

 private:
  static __m128i load_u16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
};

}  // namespace kernels::isa
