// The vocabulary in plain C++: registers of one lane. What each operation means: vocabulary.h.
//
// Any thread; needs no particular CPU.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace kernels::isa {

struct Scalar {
  static constexpr int kLanes = 1;
  static constexpr int kTogether = 1;
  static constexpr int kColumns = 4;
  using Bytes = uint32_t;
  using Word = uint32_t;
  using SumU4 = int32_t;
  using SumU6 = int32_t;
  using SumS8 = int32_t;
  using Scale = int32_t;
  using Table = const uint8_t*;
  using I32 = int32_t;
  using F32 = float;

  // Bytes.
  static Bytes load(const void* p) { return splat(p); }
  static Bytes splat(const void* p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static Bytes and_bytes(Bytes a, uint8_t mask) { return a & (mask * 0x01010101u); }
  static Bytes or_bytes(Bytes a, Bytes b) { return a | b; }
  template <int n>
  static Bytes shr_bits(Bytes a) {
    return a >> n;
  }
  template <int n>
  static Bytes shl_bits(Bytes a) {
    return a << n;
  }
  static Table table16(const uint8_t* bytes) { return bytes; }
  static Bytes look_up(Table table, Bytes codes) {
    Bytes found = 0;
    for (int i = 0; i < 32; i += 8) found |= uint32_t(table[codes >> i & 15]) << i;
    return found;
  }
  static Bytes even16(Bytes a) { return a & 0x00ff00ffu; }
  static Bytes odd16(Bytes a) { return (a >> 8) & 0x00ff00ffu; }
  static Bytes even16_signed(Bytes a) { return pair(int8_t(a), int8_t(a >> 16)); }
  static Bytes odd16_signed(Bytes a) { return pair(int8_t(a >> 8), int8_t(a >> 24)); }

  // Dot products of four.
  static SumU4 zero_u4() { return 0; }
  static SumU4 dot_u4(SumU4 sum, Bytes w, Bytes x) { return dot_u8(sum, w, x); }
  static I32 scale_u4(SumU4 sum, Scale scale) { return sum * scale; }
  static I32 sum_u4(SumU4 sum) { return sum; }
  static SumU6 zero_u6() { return 0; }
  template <int step>
  static SumU6 dot_u6(SumU6 sum, Bytes w, Bytes x) {
    return dot_u8(sum, w, x);
  }
  static I32 scale_u6(SumU6 sum, Scale scale) { return sum * scale; }
  static I32 sum_u6(SumU6 sum) { return sum; }
  static SumS8 start_s8(const int32_t*) { return 0; }
  static SumS8 dot_s8(SumS8 sum, Bytes w, Bytes x) {
    w ^= 0x80808080u;
    for (int i = 0; i < 32; i += 8) sum += int8_t(w >> i) * int8_t(x >> i);
    return sum;
  }
  static constexpr int kAddedToS7 = 128;
  static SumS8 dot_s7(SumS8 sum, Bytes w, Bytes x) { return dot_s8(sum, w, x); }
  static I32 sum_s8(SumS8 sum) { return sum; }
  static I32 scale_i32(I32 a, Scale scale) { return a * scale; }
  static I32 dot_i16(I32 sum, Bytes w, Bytes x) {
    return sum + int16_t(w) * int16_t(x) + int16_t(w >> 16) * int16_t(x >> 16);
  }
  static Scale scale_of(Bytes codes, int j) { return uint8_t(codes >> (8 * j)); }
  static Scale scale_of_signed(Bytes codes, int j) { return int8_t(codes >> (8 * j)); }

  // Integers.
  static I32 set_i32(int32_t a) { return a; }
  static I32 add(I32 a, I32 b) { return int32_t(uint32_t(a) + uint32_t(b)); }
  static I32 sub(I32 a, I32 b) { return int32_t(uint32_t(a) - uint32_t(b)); }
  static I32 and_i32(I32 a, I32 b) { return a & b; }
  static I32 max_i32(I32 a, I32 b) { return a > b ? a : b; }
  static I32 shl_lanes(I32 a, Bytes n) { return a << n; }
  template <int n>
  static I32 shl(I32 a) {
    return a << n;
  }
  template <int n>
  static I32 sar(I32 a) {
    return a >> n;
  }
  static int32_t reduce_add(I32 a) { return a; }
  static int32_t reduce_max(I32 a) { return a; }
  static I32 load_i8(const void* p) {
    int8_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void store_i8(void* p, I32 a) {
    const int8_t v = int8_t(a);
    std::memcpy(p, &v, sizeof v);
  }

  // Floats.
  static F32 set_f32(float a) { return a; }
  static F32 splat_f32(const void* p) { return load_f32(p); }
  static F32 load_f32(const void* p) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static F32 load_f16(const void* p) { return f16_to_f32(load_u16(p)); }
  static F32 load_bf16(const void* p) { return bf16_to_f32(load_u16(p)); }
  static void store_f32(void* p, F32 a) { std::memcpy(p, &a, sizeof a); }
  static void store_f16_clamped(void* p, F32 a) {
    const uint16_t v = f32_to_f16_clamped(a);
    std::memcpy(p, &v, sizeof v);
  }
  static F32 to_f32(I32 a) { return float(a); }
  static I32 round_i32(F32 a) {  // |a| < 2^22: the addition rounds to nearest even
    return bits(a + 0x1.8p23f) - bits(0x1.8p23f);
  }
  static I32 bits(F32 a) { return std::bit_cast<int32_t>(a); }
  static F32 from_bits(I32 a) { return std::bit_cast<float>(a); }
  static F32 add_f32(F32 a, F32 b) { return a + b; }
  static F32 sub_f32(F32 a, F32 b) { return a - b; }
  static F32 mul(F32 a, F32 b) { return a * b; }
  static F32 div(F32 a, F32 b) { return a / b; }
  static F32 max_f32(F32 a, F32 b) { return a > b ? a : b; }
  static F32 min_f32(F32 a, F32 b) { return a < b ? a : b; }
  static F32 fma(F32 a, F32 b, F32 c) { return __builtin_fmaf(a, b, c); }
  static F32 fnma(F32 a, F32 b, F32 c) { return __builtin_fmaf(-a, b, c); }
  static float reduce_add_f32(F32 a) { return a; }
  static float reduce_max_f32(F32 a) { return a; }

 private:
  static uint16_t load_u16(const void* p) {
    uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static Bytes pair(int low, int high) { return uint16_t(low) | uint32_t(uint16_t(high)) << 16; }
  static int32_t dot_u8(int32_t sum, Bytes w, Bytes x) {
    for (int i = 0; i < 32; i += 8) sum += uint8_t(w >> i) * int8_t(x >> i);
    return sum;
  }
};

}  // namespace kernels::isa
