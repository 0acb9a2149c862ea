// The KV cache and attention over it, once for all instruction sets. Shapes and orders: ops.h.
//
// Chunk = block of 64 positions, aligned to position 0. Within a chunk: scores by a chain of fma
// over head_dim, m = their maximum, p = exp(score - m), l = sum of p (lanes16.h), o = chain of fma
// over the positions. Chunks meet in ascending order: with M = max(m, m'), l and o of either side
// are multiplied by exp(m - M) and added; at the end out = o / l. A chunk never looks at another
// one before that, so batching and cache hits cannot change a bit. Positions before the first that
// counts weigh nothing in their chunk; whole chunks of them are left out. A sink meets the rest as
// a last chunk of m = its score, l = 1 and o = 0.
#pragma once

#include "base/limits.h"
#include "kernels/kv_q8_0.h"
#include "kernels/lanes16.h"

namespace kernels {

inline constexpr int kChunk = base::kKvBlockPositions;
static_assert(kChunk % 16 == 0);

template <class V>
struct Attention {
  using L = Lanes16<V>;
  using Slots = KvSlots;

  static void store_k(KvType type, const float* k, int head_dim, int slot, std::byte* block) {
    if (type == KvType::kQ8_0) return KvQ8_0<V>::store_k(k, head_dim, slot, block);
    if (type == KvType::kF32) {
      for (int i = 0; i < head_dim; ++i) {
        std::memcpy(block + static_cast<size_t>(i * kChunk + slot) * 4, k + i, 4);
      }
      return;
    }
    for (int i = 0; i < head_dim; i += 16) {
      uint16_t halves[16];
      L::load(k + i, head_dim - i, 0).store_f16_clamped(halves);
      for (int n = 0; n < 16 && i + n < head_dim; ++n) {
        std::memcpy(block + static_cast<size_t>((i + n) * kChunk + slot) * 2, halves + n, 2);
      }
    }
  }

  static void store_v(KvType type, const float* v, int value_dim, int slot, std::byte* block) {
    if (type == KvType::kQ8_0) return KvQ8_0<V>::store_v(v, value_dim, slot, block);
    const size_t first = static_cast<size_t>(slot) * static_cast<size_t>(value_dim);
    if (type == KvType::kF32) {
      std::memcpy(block + first * 4, v, static_cast<size_t>(value_dim) * 4);
      return;
    }
    for (int i = 0; i < value_dim; i += 16) {
      uint16_t halves[16];
      L::load(v + i, value_dim - i, 0).store_f16_clamped(halves);
      const int n = value_dim - i < 16 ? value_dim - i : 16;
      std::memcpy(block + (first + static_cast<size_t>(i)) * 2, halves, static_cast<size_t>(n) * 2);
    }
  }

  static void attend(const AttendArgs& args) {
    if (args.kv_type == KvType::kF16) {
      attend_typed<KvType::kF16>(args);
    } else if (args.kv_type == KvType::kF32) {
      attend_typed<KvType::kF32>(args);
    } else {
      attend_typed<KvType::kQ8_0>(args);
    }
  }

 private:
  /// How the chunk and what came before it are added.
  struct Merge {
    bool first;    // nothing came before
    float before;  // factors
    float chunk;
  };
  template <KvType type>
  static void attend_typed(const AttendArgs& args) {
    float top = 0;
    float total = 0;
    const int64_t first_chunk = args.first / kChunk * kChunk;
    for (int64_t at = first_chunk; at < args.positions; at += kChunk) {
      const Slots slots = {
          at < args.first ? static_cast<int>(args.first - at) : 0,
          args.positions - at < kChunk ? static_cast<int>(args.positions - at) : kChunk};
      float weights[kChunk];
      scores<type>(args, args.k_blocks[at / kChunk], weights);
      // Positions that do not count may hold anything; from here on they weigh nothing.
      for (int i = 0; i < slots.begin; ++i) weights[i] = -__builtin_inff();
      for (int i = slots.end; i < kChunk; ++i) weights[i] = -__builtin_inff();
      float chunk_top, chunk_total;
      exponentiate(weights, chunk_top, chunk_total);
      Merge merge{at == first_chunk, 0, 1};
      if (!merge.first) {
        const float highest = top > chunk_top ? top : chunk_top;
        merge.before = one_exp(top - highest);
        merge.chunk = one_exp(chunk_top - highest);
        chunk_top = highest;
        chunk_total = __builtin_fmaf(chunk_total, merge.chunk, total * merge.before);
      }
      top = chunk_top;
      total = chunk_total;
      add_values<type>(args, args.v_blocks[at / kChunk], weights, slots, merge);
    }
    if (args.sink != nullptr) {
      const float highest = top > *args.sink ? top : *args.sink;
      const float before = one_exp(top - highest);
      total = __builtin_fmaf(total, before, one_exp(*args.sink - highest));
      const L factor = L::set(before);
      for (int i = 0; i < args.value_dim; i += 16) {
        const int n = args.value_dim - i;
        (L::load(args.out + i, n, 0) * factor).store(args.out + i, n);
      }
    }
    const L sum = L::set(total);
    for (int i = 0; i < args.value_dim; i += 16) {
      const int n = args.value_dim - i;
      (L::load(args.out + i, n, 0) / sum).store(args.out + i, n);
    }
  }

  static float one_exp(float x) {
    float lanes[V::kLanes];
    V::store_f32(lanes, kernels::exp<V>(V::set_f32(x)));
    return lanes[0];
  }

  /// q K of all positions of a block, scaled.
  template <KvType type>
  static void scores(const AttendArgs& args, const std::byte* k, float* out) {
    constexpr int kBytes = L::template kKvBytes<type>;
    constexpr int kGroups = kChunk / 16;
    L sums[kGroups];
    for (L& sum : sums) sum = L::set(0);
    if constexpr (type == KvType::kQ8_0) {
      KvQ8_0<V>::scores(args, k, sums);
    } else {
      for (int i = 0; i < args.head_dim; ++i, k += kChunk * kBytes) {
        const L q = L::set(args.q[i]);
        for (int n = 0; n < kGroups; ++n) {
          sums[n] = fma(q, L::template load_kv<type>(k + 16 * n * kBytes), sums[n]);
        }
      }
    }
    const L scale = L::set(args.scale);
    for (int n = 0; n < kGroups; ++n) (sums[n] * scale).store(out + 16 * n);
  }

  /// Scores to exp(score - top); their sum.
  static void exponentiate(float* weights, float& top, float& total) {
    L highest = L::load(weights);
    for (int i = 16; i < kChunk; i += 16) highest = max(highest, L::load(weights + i));
    top = highest.max();
    const L offset = L::set(top);
    L sums = L::set(0);
    for (int i = 0; i < kChunk; i += 16) {
      const L e = exp(L::load(weights + i) - offset);
      e.store(weights + i);
      sums = sums + e;
    }
    total = sums.sum();
  }

  /// out = out * before + (weights V) * chunk.
  template <KvType type>
  static void add_values(const AttendArgs& args, const std::byte* v, const float* weights,
                         Slots slots, const Merge& merge) {
    int i = 0;
    for (; i + 64 <= args.value_dim; i += 64) add_dims<type, 4>(args, v, weights, slots, i, merge);
    for (; i < args.value_dim; i += 16) add_dims<type, 1>(args, v, weights, slots, i, merge);
  }

  /// The same for N groups of 16 dimensions, which run side by side.
  template <KvType type, int N>
  static void add_dims(const AttendArgs& args, const std::byte* v, const float* weights,
                       Slots slots, int first, const Merge& merge) {
    const int dims = args.value_dim - first;
    L sums[N];
    for (L& sum : sums) sum = L::set(0);
    if constexpr (type == KvType::kQ8_0) {
      KvQ8_0<V>::add_values(args, v, weights, slots, first, sums);
    } else {
      add_products<type>(args, v, weights, slots, first, sums);
    }
    for (int n = 0; n < N; ++n) {
      float* out = args.out + first + 16 * n;
      const int count = N == 1 ? dims : 16;
      if (!merge.first) {
        const L before = L::load(out, count, 0) * L::set(merge.before);
        sums[n] = fma(sums[n], L::set(merge.chunk), before);
      }
      sums[n].store(out, count);
    }
  }

  /// sums = weights V of 16 N dimensions.
  template <KvType type, int N>
  [[gnu::always_inline]] static void add_products(const AttendArgs& args, const std::byte* v,
                                                  const float* weights, Slots slots, int first,
                                                  L (&sums)[N]) {
    constexpr int kBytes = L::template kKvBytes<type>;
    const int dims = args.value_dim - first;
    const size_t row_bytes = static_cast<size_t>(args.value_dim) * kBytes;
    const std::byte* row =
        v + static_cast<size_t>(slots.begin) * row_bytes + static_cast<size_t>(first) * kBytes;
    for (int i = slots.begin; i < slots.end; ++i, row += row_bytes) {
      const L weight = L::set(weights[i]);
      for (int n = 0; n < N; ++n) {
        const L value = N == 1 ? L::template load_kv<type>(row, dims)
                               : L::template load_kv<type>(row + 16 * n * kBytes);
        sums[n] = fma(weight, value, sums[n]);
      }
    }
  }
};

}  // namespace kernels
