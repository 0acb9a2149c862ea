// The KV cache and attention over it, once for all instruction sets. Shapes and orders: attend.h.
//
// Chunk = block of 64 positions, aligned to position 0. Within a chunk: scores by a chain of fma
// over head_dim, m = their maximum, p = exp(score - m), l = sum of p (lanes16.h), o = chain of fma
// over the positions. Chunks of a segment meet in ascending order: with M = max(m, m'), l and o of
// either side are multiplied by exp(m - M) and added; in the same way the segments of a sequence.
// At the end out = o / l. A chunk never looks at another one before that, so batching and cache
// hits cannot change a bit. Positions before the first that counts weigh nothing in their chunk;
// whole chunks of them are left out. A sink meets the rest as a last segment of m = its score, l =
// 1 and o = 0.
//
// Queries of one call meet a chunk in tiles, so that a key or value that was loaded and widened
// serves several of them. A tile never adds up two queries in one lane.
#pragma once

#include "kernels/kv_latent.h"
#include "kernels/kv_plain.h"
#include "kernels/kv_q8_0.h"

namespace kernels {

inline constexpr int kChunk = base::kKvBlockPositions;
static_assert(kChunk % 64 == 0);

template <class V>
struct Attention {
  using L = Lanes16<V>;
  static void store_k(KvType type, const float* k, int head_dim, int slot, std::byte* block) {
    with_type(type, [&]<KvType t>(Type<t>) { Kv<t>::store_k(k, head_dim, slot, block); });
  }
  static void store_v(KvType type, const float* v, int value_dim, int slot, std::byte* block) {
    with_type(type, [&]<KvType t>(Type<t>) { Kv<t>::store_v(v, value_dim, slot, block); });
  }

  static void attend(const AttendArgs& args) {
    if (args.is_latent) {
      with_type(args.kv_type, [&]<KvType type>(Type<type>) { meet_all<KvLatent<V, type>>(args); });
    } else {
      with_type(args.kv_type, [&]<KvType type>(Type<type>) { meet_all<Kv<type>>(args); });
    }
  }

  static void merge(const Attended& next, int value_dim, Attended& all) {
    const Merge merge = merge_tops(all.top, next.top);
    all.top = merge.top;
    all.total = __builtin_fmaf(next.total, merge.after, all.total * merge.before);
    const L before = L::set(merge.before), after = L::set(merge.after);
    for (int i = 0; i < value_dim; i += 16) {
      const int n = value_dim - i;
      const L values = L::load(all.values + i, n, 0) * before;
      fma(L::load(next.values + i, n, 0), after, values).store(all.values + i, n);
    }
  }

  static void finish(const float* sink, int value_dim, Attended& all) {
    if (sink != nullptr) {
      const Merge merge = merge_tops(all.top, *sink);
      all.top = merge.top;
      all.total = __builtin_fmaf(all.total, merge.before, merge.after);
      const L factor = L::set(merge.before);
      for (int i = 0; i < value_dim; i += 16) {
        const int n = value_dim - i;
        (L::load(all.values + i, n, 0) * factor).store(all.values + i, n);
      }
    }
    const L sum = L::set(all.total);
    for (int i = 0; i < value_dim; i += 16) {
      const int n = value_dim - i;
      (L::load(all.values + i, n, 0) / sum).store(all.values + i, n);
    }
  }

 private:
  template <KvType type>
  using Kv = std::conditional_t<type == KvType::kQ8_0, KvQ8_0<V>, KvPlain<V, type>>;
  template <KvType type>
  using Type = std::integral_constant<KvType, type>;
  template <class Work>
  [[gnu::always_inline]] static void with_type(KvType type, Work work) {
    if (type == KvType::kF16) {
      work(Type<KvType::kF16>{});
    } else if (type == KvType::kF32) {
      work(Type<KvType::kF32>{});
    } else {
      work(Type<KvType::kQ8_0>{});
    }
  }

  /// How two sides of scores are added.
  struct Merge {
    float top;
    float before, after;  // factors
  };

  static Merge merge_tops(float before, float after) {
    const float top = before > after ? before : after;
    float exps[16] = {before - top, after - top};
    exp(L::load(exps)).store(exps);
    return {top, exps[0], exps[1]};
  }

  template <class K>
  static void meet_all(const AttendArgs& args) {
    for (int block = 0; block < kSegmentBlocks; ++block) meet_block<K>(args, block);
  }
  /// All queries that reach a block, some at a time.
  template <class K>
  static void meet_block(const AttendArgs& args, int block) {
    const AttendQuery* tile[kKvTile];
    int count = 0;
    for (int i = 0; i < args.count; ++i) {
      const AttendQuery& query = args.queries[i];
      if (query.begin >= (block + 1) * kChunk || query.end <= block * kChunk) continue;
      tile[count++] = &query;
      if (count < kKvTile) continue;
      meet<K, kKvTile>(args, block, tile);
      count = 0;
    }
    meet_rest<K, kKvTile / 2>(args, block, tile, count);
  }
  template <class K, int Q>
  static void meet_rest(const AttendArgs& args, int block, const AttendQuery* const* tile,
                        int count) {
    for (; count >= Q; tile += Q, count -= Q) meet<K, Q>(args, block, tile);
    if constexpr (Q > 1) meet_rest<K, Q / 2>(args, block, tile, count);
  }

  template <class K, int Q>
  static void meet(const AttendArgs& args, int block, const AttendQuery* const* queries) {
    const KvTile<V, Q> tile(args, block, queries);
    float weights[Q][kChunk];
    K::scores(tile, args.k_blocks[block], weights);
    Merge merges[Q] = {};
    bool starts[Q];  // nothing of the segment came before
    for (int q = 0; q < Q; ++q) {
      // Positions that do not count may hold anything; from here on they weigh nothing.
      for (int i = 0; i < tile.begin[q]; ++i) weights[q][i] = -__builtin_inff();
      for (int i = tile.end[q]; i < kChunk; ++i) weights[q][i] = -__builtin_inff();
      float top, total;
      exponentiate(weights[q], top, total);
      Attended& out = *queries[q]->out;
      starts[q] = queries[q]->begin >= block * kChunk;
      if (!starts[q]) {
        merges[q] = merge_tops(out.top, top);
        top = merges[q].top;
        total = __builtin_fmaf(total, merges[q].after, out.total * merges[q].before);
      }
      out.top = top;
      out.total = total;
    }
    add_values<K>(tile, (args.is_latent ? args.k_blocks : args.v_blocks)[block], weights, starts,
                  merges);
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

  /// values = values * before + (weights V) * after.
  template <class K, int Q>
  static void add_values(const KvTile<V, Q>& tile, const std::byte* v,
                         const float (*weights)[kChunk], const bool* starts, const Merge* merges) {
    constexpr int G = kKvGroups<V, Q>;
    int i = 0;
    for (; i + 16 * G <= tile.value_dim; i += 16 * G) {
      add_dims<K, Q, G>(tile, v, weights, i, starts, merges);
    }
    for (; i < tile.value_dim; i += 16) {
      add_dims<K, Q, 1>(tile, v, weights, i, starts, merges);
    }
  }

  /// The same of G groups of 16 dimensions.
  template <class K, int Q, int G>
  static void add_dims(const KvTile<V, Q>& tile, const std::byte* v, const float (*weights)[kChunk],
                       int first, const bool* starts, const Merge* merges) {
    L sums[Q][G];
    clear_sums<V>(sums);
    K::template add_values<Q, G>(tile, v, weights, first, sums);
    const int dims = tile.value_dim - first;
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 4
      for (int n = 0; n < G; ++n) {
        float* values = tile.query[q]->out->values + first + 16 * n;
        const int count = G == 1 ? dims : 16;
        if (!starts[q]) {
          const L before = L::load(values, count, 0) * L::set(merges[q].before);
          sums[q][n] = fma(sums[q][n], L::set(merges[q].after), before);
        }
        sums[q][n].store(values, count);
      }
    }
  }
};

}  // namespace kernels
