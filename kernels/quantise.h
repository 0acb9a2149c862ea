// Float32 activations to ActivationFormat::kQ8 and kQ8_32, once for all instruction sets.
//
// kQ8_32, per block: q = round(x * (127 / top)), scale = top / 127, where top = max |x|. kQ8, per
// block: top = max |x|; sub-block j, whose largest value is a_j, gets the smallest shift s with
// a_j <= top * 2^(s - 3), so that x * 2^(3 - s) stays within top; then q = round(x * 2^(3 - s) *
// (127 / top)) and scale = top / 127 / 8. The error of an element is at most half a step, scale *
// 2^s, give or take a rounding of float.
//
// q is never -128: |x * 2^(3 - s)| * (127 / top) rounds to at most 127. A top below 1e-30 counts as
// zero (127 / top and the scale would leave the range of float). An infinity or NaN anywhere in a
// block makes its scale NaN and its elements zero, so every product with the column becomes NaN.
#pragma once

#include "kernels/activations.h"
#include "kernels/lanes16.h"

namespace kernels {

template <class V>
struct Quantiser {
  static void quantise(const float* x, int64_t k, std::byte* out) {
    auto* blocks = reinterpret_cast<ActivationBlock*>(out);
    for (int64_t i = 0; i < k; i += kBlockWeights, ++blocks) {
      const int64_t rest = (k - i) / kSubBlockWeights;
      quantise_block(x + i, rest < 8 ? static_cast<int>(rest) : 8, *blocks);
    }
  }

  static void quantise_32(const float* x, int64_t k, std::byte* out) {
    auto* blocks = reinterpret_cast<ActivationBlock32*>(out);
    for (int64_t i = 0; i < k; i += kSubBlockWeights, ++blocks) quantise_32_block(x + i, *blocks);
  }

 private:
  static constexpr int kRegisters = kSubBlockWeights / V::kLanes;
  static constexpr int32_t kInfinity = 0x7f800000;

  static void quantise_block(const float* x, int sub_blocks, ActivationBlock& block) {
    // Magnitudes are compared as integers: the order is the same, and NaN is the largest.
    int32_t largest[8];
    int32_t top_bits = 0;
    for (int j = 0; j < sub_blocks; ++j) {
      largest[j] = largest_bits(x + kSubBlockWeights * j);
      top_bits = top_bits > largest[j] ? top_bits : largest[j];
    }
    const float top = __builtin_bit_cast(float, top_bits);
    const bool finite = top_bits < kInfinity;
    block.scale = finite ? 0 : __builtin_nanf("");
    const bool empty = !finite || top <= 1e-30f;
    if (empty || sub_blocks < 8) {
      std::memset(block.x, 0, offsetof(ActivationBlock, scale));
      if (empty) sub_blocks = 0;
    }
    std::memset(block.starts, 0, sizeof block.starts);
    std::memset(block.zero, 0, sizeof block.zero);
    if (empty) return;
    block.scale = top / 127.0f * 0.125f;
    const float inverse = 127.0f / top;
    for (int j = 0; j < sub_blocks; ++j) {
      const float a = __builtin_bit_cast(float, largest[j]);
      // Compared one bit down from top * 2^(s - 3), so that nothing overflows or underflows.
      uint32_t shift = 3;
      while (shift > 0 && a * static_cast<float>(1u << (4 - shift)) <= top) --shift;
      block.shift[j] = shift;
      const float factor = static_cast<float>(1u << (3 - shift));
      quantise_sub_block(x + kSubBlockWeights * j, j, factor, inverse, block);
    }
  }

  static void quantise_32_block(const float* x, ActivationBlock32& block) {
    const int32_t top_bits = largest_bits(x);
    const float top = __builtin_bit_cast(float, top_bits);
    const bool finite = top_bits < kInfinity;
    if (!finite || top <= 1e-30f) {
      std::memset(&block, 0, sizeof block);
      if (!finite) block.scale = __builtin_nanf("");
      return;
    }
    block.scale = top / 127.0f;
    const auto inverse = V::set_f32(127.0f / top);
    auto sum = V::set_i32(0);
    for (int i = 0; i < kSubBlockWeights; i += V::kLanes) {
      const auto q = V::round_i32(V::mul(V::load_f32(x + i), inverse));
      V::store_i8(block.x + i, q);
      sum = V::add(sum, q);
    }
    block.start = -128 * V::reduce_add(sum);
  }

  static int32_t largest_bits(const float* x) {
    const auto mask = V::set_i32(0x7fffffff);
    auto largest = V::set_i32(0);
    for (int i = 0; i < kRegisters; ++i) {
      const auto bits = V::bits(V::load_f32(x + i * V::kLanes));
      largest = V::max_i32(largest, V::and_i32(bits, mask));
    }
    return V::reduce_max(largest);
  }

  static void quantise_sub_block(const float* x, int j, float factor, float inverse,
                                 ActivationBlock& block) {
    const auto f = V::set_f32(factor), inv = V::set_f32(inverse);
    int32_t sums[2];
    for (int half = 0; half < 2; ++half) {
      auto sum = V::set_i32(0);
      for (int i = 0; i < kRegisters / 2; ++i) {
        const int at = 16 * half + i * V::kLanes;
        const auto q = V::round_i32(V::mul(V::mul(V::load_f32(x + at), f), inv));
        V::store_i8(block.x + kSubBlockWeights * j + at, q);
        sum = V::add(sum, q);
      }
      sums[half] = V::reduce_add(sum);
      block.sums_of_16[pair_order(2 * j + half)] =
          static_cast<int16_t>(sums[half] << block.shift[j]);
    }
    const int32_t sum = sums[0] + sums[1];
    block.starts[j] = -128 * sum;
    block.sums_of_32[pair_order(j)] = static_cast<int16_t>(sum << block.shift[j]);
  }
};

}  // namespace kernels
