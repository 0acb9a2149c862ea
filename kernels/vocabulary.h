// The vocabulary: the vector operations that every kernel is written in. An instruction set is one
// file in isa/ that spells them; the kernels are templates over it.
//
// V::kLanes   lanes of a register: 1, 8 or 16. A lane is 32 bits wide and belongs to one row of a
//             panel, or to one element of a vector.
// V::kTogether  registers of one panel that a kernel takes at once: as many as its sums fit.
// V::kColumns   columns that a kernel takes at once: as many as the registers hold sums of.
//
// All results are exact integers or single IEEE operations, so equal in every instruction set; how
// a sum is held before it is asked for is its own affair (SumU4, SumU6, SumS8, Scale).
//
//   load  splat_f32           a register (aligned) · one float to all lanes
//   splat                     one 32-bit word to all lanes, as Word: what dot_… take, or Bytes
//   and_bytes  or_bytes  shr_bits  shl_bits       bits; shifts move whole lanes
//   table16  look_up          16 bytes, and for each byte 0 … 15 of a register the one it points to
//   even16  odd16  …_signed   bytes 0, 2 or 1, 3 of each lane as two int16
//   dot_u4  dot_u6  dot_s8    sum += four products of w (0 … 15 · 0 … 63 · 128 + code) and x
//   (int8);
//                             at most eight steps for u4, four for u6, which are told their number
//                             (more, if w is smaller and the format shows that they fit)
//   dot_s7                    the same of -127 … 127, with kAddedToS7 (0 or 128) added to them
//   scale_u4  scale_u6        sum * scale, int32
//   sum_u4  sum_u6            the sum, int32
//   start_s8  sum_s8          begin (from -128 * sum of x) and end of a dot_s8 sum
//   scale_i32                 int32 * scale
//   dot_i16                   sum += two products of int16
//   scale_of  scale_of_signed byte j of each lane as Scale
//   load_i8                   one signed byte per lane, int32
//   shl_lanes                 int32 << n, n per lane
//   round_i32                 to nearest even, |a| < 2^22
//   max_f32  min_f32          a > b ? a : b and a < b ? a : b: the second one if either is NaN
//   fma  fnma                 a * b + c and c - a * b, rounded once
//   store_f16_clamped         nearest even, at most ±65504, every NaN as 0x7e00 or 0xfe00
//   reduce_…                  over lanes: i with i + n/2, then the same of the lower half, …
#pragma once

#include <concepts>
#include <cstdint>

namespace kernels {

/// What the compiler can check of the above.
template <class V>
concept Vocabulary = requires(void* to, const void* from, typename V::Bytes bytes, int j,
                              typename V::Word word, typename V::I32 i, typename V::F32 f,
                              typename V::SumU4 u4, typename V::SumU6 u6, typename V::SumS8 s8,
                              typename V::Scale scale, const int32_t* start, const uint8_t* table) {
  requires V::kLanes == 1 || V::kLanes == 8 || V::kLanes == 16;
  requires 16 % (V::kLanes * V::kTogether) == 0;
  requires V::kColumns == 4 || V::kColumns == 8;
  { V::load(from) } -> std::same_as<typename V::Bytes>;
  { V::splat(from) } -> std::same_as<typename V::Word>;
  requires std::convertible_to<typename V::Word, typename V::Bytes>;
  { V::and_bytes(bytes, uint8_t{}) } -> std::same_as<typename V::Bytes>;
  { V::or_bytes(bytes, bytes) } -> std::same_as<typename V::Bytes>;
  { V::template shr_bits<4>(bytes) } -> std::same_as<typename V::Bytes>;
  { V::template shl_bits<4>(bytes) } -> std::same_as<typename V::Bytes>;
  { V::look_up(V::table16(table), bytes) } -> std::same_as<typename V::Bytes>;
  { V::even16(bytes) } -> std::same_as<typename V::Bytes>;
  { V::odd16(bytes) } -> std::same_as<typename V::Bytes>;
  { V::even16_signed(bytes) } -> std::same_as<typename V::Bytes>;
  { V::odd16_signed(bytes) } -> std::same_as<typename V::Bytes>;
  { V::dot_u4(V::zero_u4(), bytes, word) } -> std::same_as<typename V::SumU4>;
  { V::scale_u4(u4, scale) } -> std::same_as<typename V::I32>;
  { V::sum_u4(u4) } -> std::same_as<typename V::I32>;
  { V::template dot_u6<0>(V::zero_u6(), bytes, word) } -> std::same_as<typename V::SumU6>;
  { V::scale_u6(u6, scale) } -> std::same_as<typename V::I32>;
  { V::sum_u6(u6) } -> std::same_as<typename V::I32>;
  { V::dot_s8(V::start_s8(start), bytes, word) } -> std::same_as<typename V::SumS8>;
  { V::dot_s7(s8, bytes, word) } -> std::same_as<typename V::SumS8>;
  requires V::kAddedToS7 == 0 || V::kAddedToS7 == 128;
  { V::sum_s8(s8) } -> std::same_as<typename V::I32>;
  { V::scale_i32(i, scale) } -> std::same_as<typename V::I32>;
  { V::dot_i16(i, bytes, word) } -> std::same_as<typename V::I32>;
  { V::scale_of(bytes, j) } -> std::same_as<typename V::Scale>;
  { V::scale_of_signed(bytes, j) } -> std::same_as<typename V::Scale>;
  { V::shl_lanes(i, bytes) } -> std::same_as<typename V::I32>;
  { V::max_i32(V::add(i, i), V::and_i32(i, V::set_i32(0))) } -> std::same_as<typename V::I32>;
  { V::template sar<1>(V::template shl<1>(V::sub(i, i))) } -> std::same_as<typename V::I32>;
  { V::reduce_add(i) + V::reduce_max(i) } -> std::same_as<int32_t>;
  { V::load_i8(from) } -> std::same_as<typename V::I32>;
  V::store_i8(to, i);
  V::store_f32(to, f);
  V::store_f16_clamped(to, f);
  { V::splat_f32(from) } -> std::same_as<typename V::F32>;
  { V::load_f32(from) } -> std::same_as<typename V::F32>;
  { V::load_f16(from) } -> std::same_as<typename V::F32>;
  { V::load_bf16(from) } -> std::same_as<typename V::F32>;
  { V::to_f32(V::round_i32(f)) } -> std::same_as<typename V::F32>;
  { V::from_bits(V::bits(f)) } -> std::same_as<typename V::F32>;
  { V::max_f32(V::add_f32(f, f), V::sub_f32(f, f)) } -> std::same_as<typename V::F32>;
  { V::min_f32(V::mul(f, f), V::div(f, f)) } -> std::same_as<typename V::F32>;
  { V::fma(f, V::set_f32(0), V::fnma(f, f, f)) } -> std::same_as<typename V::F32>;
  { V::reduce_add_f32(f) + V::reduce_max_f32(f) } -> std::same_as<float>;
};

}  // namespace kernels
