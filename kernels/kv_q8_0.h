// Keys and values in q8_0 (kv_type.h), once for all instruction sets.
//
// Score: in each group of 32 dimensions a chain of fma of q and code, which begins with 0; then a
// chain over the groups of fma of that and the scale, which begins with 0. Output: chain of fma
// over the positions of (weight * scale, rounded) and code. So a scale costs one operation for 16
// positions, and a code as many as an f16 does.
#pragma once

#include "kernels/half.h"
#include "kernels/lanes16.h"

namespace kernels {

/// Positions of a block that count.
struct KvSlots {
  int begin, end;
};

template <class V>
struct KvQ8_0 {
  using L = Lanes16<V>;
  static constexpr int kPositions = base::kKvBlockPositions;

  static void store_k(const float* k, int head_dim, int slot, std::byte* block) {
    for (int i = 0; i < head_dim; i += kKvGroup, k += kKvGroup, block += kKvGroupBytes) {
      int8_t codes[kKvGroup];
      const int dims = dims_from(i, head_dim);
      store_scale(quantise(k, dims, codes), dims, slot, block);
      for (int n = 0; n < dims; ++n) std::memcpy(block + n * kPositions + slot, codes + n, 1);
    }
  }

  static void store_v(const float* v, int value_dim, int slot, std::byte* block) {
    for (int i = 0; i < value_dim; i += kKvGroup, v += kKvGroup, block += kKvGroupBytes) {
      int8_t codes[kKvGroup];
      const int dims = dims_from(i, value_dim);
      store_scale(quantise(v, dims, codes), dims, slot, block);
      std::memcpy(block + slot * dims, codes, static_cast<size_t>(dims));
    }
  }

  /// q K of all positions of a block, not yet scaled by args.scale.
  template <int groups>
  static void scores(const AttendArgs& args, const std::byte* k, L (&sums)[groups]) {
    for (int first = 0; first < args.head_dim; first += kKvGroup) {
      const int dims = dims_from(first, args.head_dim);
      L parts[groups];
      for (L& part : parts) part = L::set(0);
      for (int i = first; i < first + dims; ++i, k += kPositions) {
        const L q = L::set(args.q[i]);
        for (int n = 0; n < groups; ++n) {
          parts[n] = fma(q, L::template load_kv<KvType::kQ8_0>(k + 16 * n), parts[n]);
        }
      }
      for (int n = 0; n < groups; ++n, k += 16 * 2) {
        sums[n] = fma(parts[n], L::template load_kv<KvType::kF16>(k), sums[n]);
      }
    }
  }

  /// sums = weights V of 16 N dimensions from `first` on, a multiple of 16 N. N is 1, or whole
  /// groups.
  template <int N>
  static void add_values(const AttendArgs& args, const std::byte* v, const float* weights,
                         KvSlots slots, int first, L (&sums)[N]) {
    static_assert(N == 1 || N % 2 == 0);
    Values groups[(N + 1) / 2];
    for (Values& group : groups) {
      group.find(args, v, weights, first + kKvGroup * static_cast<int>(&group - groups));
    }
    const int dims = args.value_dim - first;
    for (int i = slots.begin; i < slots.end; ++i) {
      for (int n = 0; n < N; ++n) {
        const Values& group = groups[n / 2];
        const std::byte* codes = group.codes + i * group.stride + n % 2 * 16;
        const L value = N == 1 ? L::template load_kv<KvType::kQ8_0>(codes, dims)
                               : L::template load_kv<KvType::kQ8_0>(codes);
        sums[n] = fma(L::set(group.weights[i]), value, sums[n]);
      }
    }
  }

 private:
  /// One group of values of a block, from one dimension on.
  struct Values {
    float weights[kPositions];  // times the scales
    const std::byte* codes;     // of the first position
    int stride;                 // from position to position

    void find(const AttendArgs& args, const std::byte* v, const float* unscaled, int first) {
      const int begin = first / kKvGroup * kKvGroup;
      stride = dims_from(begin, args.value_dim);
      codes = v + static_cast<size_t>(begin / kKvGroup) * kKvGroupBytes + first % kKvGroup;
      const std::byte* scales = codes - first % kKvGroup + stride * kPositions;
      for (int i = 0; i < kPositions; i += 16) {
        const L scale = L::template load_kv<KvType::kF16>(scales + i * 2);
        (L::load(unscaled + i) * scale).store(weights + i);
      }
    }
  };

  /// Of the group that begins with dimension `first`.
  static int dims_from(int first, int all) {
    return all - first < kKvGroup ? all - first : kKvGroup;
  }

  /// Codes of up to 32 elements; their scale.
  static uint16_t quantise(const float* x, int dims, int8_t* codes) {
    const L low = L::load(x, dims, 0);
    const L high = dims > 16 ? L::load(x + 16, dims - 16, 0) : L::set(0);
    const int32_t low_bits = low.largest_bits(), high_bits = high.largest_bits();
    const float top = __builtin_bit_cast(float, low_bits > high_bits ? low_bits : high_bits);
    const uint16_t scale = f32_to_f16_clamped(top / 127.0f);
    const float step = f16_to_f32(scale);
    // Where the scale is zero or NaN the codes do not count; they are small numbers all the same.
    const L divisor = L::set(step > 0 ? step : 1.0f);
    const L most = L::set(127), least = L::set(-127);
    max(min(low / divisor, most), least).store_i8(codes);
    max(min(high / divisor, most), least).store_i8(codes + 16);
    return scale;
  }

  static void store_scale(uint16_t scale, int dims, int slot, std::byte* group) {
    std::memcpy(group + dims * kPositions + slot * 2, &scale, 2);
  }
};

}  // namespace kernels
