// The KV cache and attention: equal bits in every table, right against double precision, and
// nothing beyond the given positions is looked at.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "base/limits.h"
#include "kernels/half.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/stored_kv.h"
#include "tests/kernels/tables.h"
#include "tests/kernels/whole_attention.h"

namespace kernels::testing {
namespace {

constexpr int kBlock = base::kKvBlockPositions;
constexpr KvType kKvTypes[] = {KvType::kF16, KvType::kF32, KvType::kQ8_0};

struct Spec {
  KvType type = KvType::kF16;
  int head_dim = 64;
  int value_dim = 64;
  int64_t positions = 1;
  float sigma = 1;
  int64_t first = 0;
  std::optional<float> sink = {};
  bool is_latent = false;  // values are the beginning of keys
};

/// A cache that `ops` has filled; the unused rest of its blocks is NaN.
struct Cache {
  Cache(const Ops& ops, const Spec& spec) {
    std::mt19937_64 random(5);
    std::normal_distribution<float> normal(0, spec.sigma);
    for (int64_t p = 0; p < spec.positions; ++p) {
      if (p % kBlock == 0) {
        k_blocks.emplace_back(kBlock * kv_row_bytes(spec.type, spec.head_dim));
        v_blocks.emplace_back(spec.is_latent ? 1
                                             : kBlock * kv_row_bytes(spec.type, spec.value_dim));
        std::memset(k_blocks.back().data(), 0xff, k_blocks.back().size());
        std::memset(v_blocks.back().data(), 0xff, v_blocks.back().size());
      }
      GuardedBuffer<float> k(static_cast<size_t>(spec.head_dim));
      GuardedBuffer<float> v(static_cast<size_t>(spec.value_dim));
      for (float& a : k.span()) a = normal(random);
      for (float& a : v.span()) a = normal(random);
      if (spec.is_latent) {
        ops.store_v(spec.type, k.data(), spec.head_dim, static_cast<int>(p % kBlock),
                    k_blocks.back().data());
        continue;
      }
      ops.store_k(spec.type, k.data(), spec.head_dim, static_cast<int>(p % kBlock),
                  k_blocks.back().data());
      ops.store_v(spec.type, v.data(), spec.value_dim, static_cast<int>(p % kBlock),
                  v_blocks.back().data());
    }
    for (auto& block : k_blocks) k_pointers.push_back(block.data());
    for (auto& block : v_blocks) v_pointers.push_back(block.data());
  }

  float k(const Spec& spec, int64_t position, int i) const {
    return stored_element(spec.type, spec.is_latent ? Of::kValues : Of::kKeys,
                          k_blocks[static_cast<size_t>(position / kBlock)].data(), spec.head_dim,
                          position % kBlock, i);
  }
  float v(const Spec& spec, int64_t position, int i) const {
    if (spec.is_latent) return k(spec, position, i);
    return stored_element(spec.type, Of::kValues,
                          v_blocks[static_cast<size_t>(position / kBlock)].data(), spec.value_dim,
                          position % kBlock, i);
  }

  std::vector<GuardedBuffer<std::byte>> k_blocks, v_blocks;
  std::vector<const std::byte*> k_pointers, v_pointers;
};

GuardedBuffer<float> query(const Spec& spec) {
  std::mt19937_64 random(17);
  std::normal_distribution<float> normal(0, spec.sigma);
  GuardedBuffer<float> q(static_cast<size_t>(spec.head_dim));
  for (float& a : q.span()) a = normal(random);
  return q;
}

WholeCache whole(const Spec& spec, const Cache& cache) {
  return {cache.k_pointers, cache.v_pointers, spec.head_dim,
          spec.value_dim,   spec.type,        spec.is_latent};
}

WholeQuery whole(const Spec& spec, const float* q, float* out) {
  return {.q = q,
          .scale = 1 / std::sqrt(static_cast<float>(spec.head_dim)),
          .first = spec.first,
          .positions = spec.positions,
          .sink = spec.sink ? &*spec.sink : nullptr,
          .out = out};
}

GuardedBuffer<float> attend(const Ops& ops, const Spec& spec, const Cache& cache) {
  const auto q = query(spec);
  GuardedBuffer<float> out(static_cast<size_t>(spec.value_dim));
  const WholeQuery one = whole(spec, q.data(), out.data());
  attend_whole(ops, whole(spec, cache), {&one, 1});
  return out;
}

/// softmax(q K) V in double, and the magnitudes that bound its rounding.
void expect_near_double(const Spec& spec, const Cache& cache, const GuardedBuffer<float>& out) {
  const auto q = query(spec);
  const double scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  std::vector<double> score;
  double top = spec.sink ? double{*spec.sink} : -INFINITY, score_error = 0;
  for (int64_t p = spec.first; p < spec.positions; ++p) {
    double sum = 0, magnitude = 0;
    for (int i = 0; i < spec.head_dim; ++i) {
      const double term = double{q[static_cast<size_t>(i)]} * double{cache.k(spec, p, i)} * scale;
      sum += term;
      magnitude += std::fabs(term);
    }
    score.push_back(sum);
    top = std::max(top, sum);
    score_error = std::max(score_error, magnitude * (spec.head_dim + 3) * 0x1p-24);
  }
  double total = spec.sink ? std::exp(double{*spec.sink} - top) : 0;
  for (double& s : score) total += s = std::exp(s - top);
  // exp turns an absolute error of a score into a relative one; chains over a block and over
  // blocks.
  const double relative =
      2 * score_error +
      (kBlock + 2.0 * static_cast<double>(spec.positions) / kBlock + 16) * 0x1p-24;
  for (int i = 0; i < spec.value_dim; ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t p = spec.first; p < spec.positions; ++p) {
      const double term =
          score[static_cast<size_t>(p - spec.first)] / total * double{cache.v(spec, p, i)};
      sum += term;
      magnitude += std::fabs(term);
    }
    ASSERT_NEAR(out[static_cast<size_t>(i)], sum, magnitude * relative + 1e-30) << i;
  }
}

TEST(Attend, IsEqualInAllTablesAndRight) {
  for (const KvType type : kKvTypes) {
    for (const auto& [head_dim, value_dim] :
         {std::pair{64, 64}, {40, 36}, {1, 1}, {128, 128}, {72, 576}, {17, 100}, {96, 96}}) {
      for (const int64_t positions : {1, 2, 63, 64, 65, 128, 200, 512, 513, 1100}) {
        if (positions > 200 && head_dim > 40) continue;
        const Spec spec{type, head_dim, value_dim, positions};
        const Cache expected_cache(scalar(), spec);
        const auto expected = attend(scalar(), spec, expected_cache);
        expect_near_double(spec, expected_cache, expected);
        for (const Ops* ops : equal_tables()) {
          const Cache cache(*ops, spec);
          for (size_t b = 0; b < cache.k_blocks.size(); ++b) {
            ASSERT_TRUE(same_bytes(cache.k_blocks[b], expected_cache.k_blocks[b])) << ops->name;
            ASSERT_TRUE(same_bytes(cache.v_blocks[b], expected_cache.v_blocks[b])) << ops->name;
          }
          ASSERT_TRUE(same_bytes(attend(*ops, spec, cache), expected))
              << ops->name << ' ' << head_dim << ' ' << value_dim << ' ' << positions;
        }
      }
    }
  }
}

// Every table, and the plain loops that define what is meant, with what only some models have.
std::vector<const Ops*> all_tables() {
  std::vector<const Ops*> tables = equal_tables();
  tables.push_back(&table("reference"));
  return tables;
}

TEST(Attend, CountsFromTheFirstPositionOnOnly) {
  for (const KvType type : kKvTypes) {
    for (const auto& [first, positions] : {std::pair{0, 1},
                                           {1, 2},
                                           {5, 17},
                                           {63, 64},
                                           {63, 65},
                                           {64, 65},
                                           {64, 200},
                                           {130, 140},
                                           {500, 530},
                                           {512, 513},
                                           {1000, 1100},
                                           {3, 1100}}) {
      Spec spec{type, 40, 36, positions};
      spec.first = first;
      const auto expected = attend(scalar(), spec, Cache(scalar(), spec));
      for (const Ops* ops : all_tables()) {
        SCOPED_TRACE(std::string(ops->name) + ' ' + std::to_string(first) + ' ' +
                     std::to_string(positions));
        Cache cache(*ops, spec);
        // Blocks of no position that counts are not there; what does not count is poison.
        for (int64_t b = 0; b < first / kBlock; ++b) {
          cache.k_pointers[static_cast<size_t>(b)] = nullptr;
          cache.v_pointers[static_cast<size_t>(b)] = nullptr;
        }
        const std::vector<float> poison(40, std::numeric_limits<float>::quiet_NaN());
        for (int64_t p = first / kBlock * kBlock; p < first; ++p) {
          const auto block = static_cast<size_t>(p / kBlock);
          const int slot = static_cast<int>(p % kBlock);
          ops->store_k(type, poison.data(), 40, slot, cache.k_blocks[block].data());
          ops->store_v(type, poison.data(), 36, slot, cache.v_blocks[block].data());
        }
        const auto got = attend(*ops, spec, cache);
        expect_near_double(spec, cache, got);
        EXPECT_TRUE(ops->is_reference || same_bytes(got, expected));
      }
    }
  }
}

TEST(Attend, ALatentIsKeysAndValues) {
  for (const KvType type : kKvTypes) {
    for (const auto& [head_dim, value_dim] :
         {std::pair{576, 512}, {48, 32}, {40, 36}, {17, 16}, {16, 1}, {96, 96}}) {
      for (const int64_t positions : {1, 63, 64, 200, 530}) {
        if (positions > 200 && head_dim > 100) continue;
        Spec spec{type, head_dim, value_dim, positions};
        spec.is_latent = true;
        const Cache expected_cache(scalar(), spec);
        const auto expected = attend(scalar(), spec, expected_cache);
        for (const Ops* ops : all_tables()) {
          SCOPED_TRACE(std::string(ops->name) + ' ' + std::to_string(head_dim) + ' ' +
                       std::to_string(positions));
          const Cache cache(*ops, spec);
          const auto got = attend(*ops, spec, cache);
          expect_near_double(spec, cache, got);
          ASSERT_TRUE(ops->is_reference || same_bytes(got, expected));
        }
      }
    }
  }
}

TEST(Attend, OfALatentWhatDoesNotCountIsNotUsed) {
  for (const KvType type : kKvTypes) {
    for (const auto& [first, positions] : {std::pair{0, 70}, {5, 17}, {63, 65}, {70, 130}}) {
      Spec spec{type, 56, 40, positions};
      spec.first = first;
      spec.is_latent = true;
      const auto expected = attend(scalar(), spec, Cache(scalar(), spec));
      for (const Ops* ops : all_tables()) {
        SCOPED_TRACE(std::string(ops->name) + ' ' + std::to_string(first));
        Cache cache(*ops, spec);  // behind the last position it holds NaN
        for (int64_t b = 0; b < first / kBlock; ++b)
          cache.k_pointers[static_cast<size_t>(b)] = nullptr;
        const std::vector<float> poison(56, std::numeric_limits<float>::quiet_NaN());
        for (int64_t p = first / kBlock * kBlock; p < first; ++p) {
          ops->store_v(type, poison.data(), 56, static_cast<int>(p % kBlock),
                       cache.k_blocks[static_cast<size_t>(p / kBlock)].data());
        }
        const auto got = attend(*ops, spec, cache);
        expect_near_double(spec, cache, got);
        EXPECT_TRUE(ops->is_reference || same_bytes(got, expected));
      }
    }
  }
}

TEST(Attend, ASinkTakesWeight) {
  for (const float sink : {-300.0f, -1.5f, 0.0f, 2.0f, 300.0f}) {
    for (const int64_t positions : {1, 64, 65, 200, 600}) {
      Spec spec{KvType::kF16, 40, 36, positions};
      const auto without = attend(scalar(), spec, Cache(scalar(), spec));
      spec.sink = sink;
      const auto expected = attend(scalar(), spec, Cache(scalar(), spec));
      // One so far below every score that its exp is zero changes nothing.
      EXPECT_EQ(same_bytes(without, expected), sink == -300.0f) << sink;
      for (const Ops* ops : all_tables()) {
        SCOPED_TRACE(std::string(ops->name) + ' ' + std::to_string(sink));
        const Cache cache(*ops, spec);
        const auto got = attend(*ops, spec, cache);
        expect_near_double(spec, cache, got);
        EXPECT_TRUE(ops->is_reference || same_bytes(got, expected));
      }
    }
  }
}

// Queries share loads and nothing else: any number of them together, with whatever positions count
// for each, give the bits that each of them gives alone.
TEST(Attend, QueriesTogetherAreAsEachAlone) {
  std::mt19937_64 random(29);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (const KvType type : kKvTypes) {
    for (const auto& [head_dim, value_dim] : {std::pair{64, 64},
                                              {40, 36},
                                              {1, 1},
                                              {128, 128},
                                              {96, 160},
                                              {17, 100},
                                              {80, 64},
                                              {56, 40}}) {
      Spec spec{type, head_dim, value_dim, 700};
      spec.is_latent = head_dim == 80 || head_dim == 56;
      const Cache cache(scalar(), spec);
      for (const size_t count : {2, 3, 4, 5, 7, 8, 13}) {
        GuardedBuffer<float> q(count * static_cast<size_t>(head_dim));
        std::normal_distribution<float> normal(0, 1);
        for (float& a : q.span()) a = normal(random);
        const float sink = 0.5f;
        std::vector<Spec> specs(count, spec);
        // Heads of one position; neighbours; neighbours in a window; anything.
        const int64_t kind = below(4), position = 1 + below(spec.positions - 20);
        for (size_t i = 0; i < count; ++i) {
          Spec& one = specs[i];
          one.positions = kind == 3 ? 1 + below(spec.positions)
                                    : position + (kind == 0 ? 0 : static_cast<int64_t>(i));
          if (kind == 2) one.first = std::max<int64_t>(0, one.positions - 70);
          if (kind == 3) one.first = below(one.positions);
          if (below(3) == 0) one.sink = sink;
        }
        for (const Ops* ops : equal_tables()) {
          SCOPED_TRACE(std::string(ops->name) + ' ' + std::to_string(head_dim) + ' ' +
                       std::to_string(count) + " of kind " + std::to_string(kind));
          GuardedBuffer<float> together(count * static_cast<size_t>(value_dim));
          GuardedBuffer<float> alone(count * static_cast<size_t>(value_dim));
          std::vector<WholeQuery> queries;
          for (size_t i = 0; i < count; ++i) {
            queries.push_back(whole(specs[i], q.data() + i * static_cast<size_t>(head_dim),
                                    together.data() + i * static_cast<size_t>(value_dim)));
          }
          attend_whole(*ops, whole(spec, cache), queries);
          for (size_t i = 0; i < count; ++i) {
            queries[i].out = alone.data() + i * static_cast<size_t>(value_dim);
            attend_whole(*ops, whole(spec, cache), {&queries[i], 1});
          }
          ASSERT_TRUE(same_bytes(together, alone));
        }
      }
    }
  }
}

// A value that is no number, of a position that counts for one query, spoils that one only.
TEST(Attend, AQueryDoesNotFeelWhatCountsForItsNeighbour) {
  for (const KvType type : kKvTypes) {
    const Spec spec{type, 40, 36, 70};
    const std::vector<float> poison(36, std::numeric_limits<float>::quiet_NaN());
    for (const Ops* ops : equal_tables()) {
      SCOPED_TRACE(ops->name);
      Cache cache(*ops, spec);
      ops->store_v(type, poison.data(), 36, 69 % kBlock, cache.v_blocks[1].data());
      const auto q = query(spec);
      GuardedBuffer<float> together(4 * 36), alone(36);
      std::vector<WholeQuery> queries;
      for (int64_t i = 0; i < 4; ++i) {
        Spec one = spec;
        one.positions = 67 + i;
        queries.push_back(whole(one, q.data(), together.data() + i * 36));
      }
      attend_whole(*ops, whole(spec, cache), queries);
      for (size_t i = 0; i < 3; ++i) {
        queries[i].out = alone.data();
        attend_whole(*ops, whole(spec, cache), {&queries[i], 1});
        EXPECT_EQ(std::memcmp(together.data() + i * 36, alone.data(), 36 * sizeof(float)), 0) << i;
        EXPECT_FALSE(std::isnan(alone[0]));
      }
      EXPECT_TRUE(std::isnan(together[3 * 36]));
    }
  }
}

// A segment's result does not depend on what came before it, so whoever has some of them may merge
// them later.
TEST(Attend, SegmentsMergeInTheirOrderOnly) {
  const Spec spec{KvType::kF16, 40, 36, 1500};
  const Cache cache(scalar(), spec);
  const auto q = query(spec);
  for (const Ops* ops : equal_tables()) {
    const auto expected = attend(*ops, spec, cache);
    Attended parts[3];
    std::vector<std::vector<float>> values(3, std::vector<float>(36));
    for (const size_t i : {2u, 0u, 1u}) {
      parts[i].values = values[i].data();
      const int end = static_cast<int>(
          std::min<int64_t>(kSegmentPositions, 1500 - 512 * static_cast<int64_t>(i)));
      const AttendQuery one{q.data(), 1 / std::sqrt(40.0f), 0, end, &parts[i]};
      ops->attend({.queries = &one,
                   .count = 1,
                   .k_blocks = cache.k_pointers.data() + 8 * i,
                   .v_blocks = cache.v_pointers.data() + 8 * i,
                   .head_dim = 40,
                   .value_dim = 36,
                   .kv_type = spec.type});
    }
    ops->attend_merge(parts[1], 36, parts[0]);
    ops->attend_merge(parts[2], 36, parts[0]);
    ops->attend_finish(nullptr, 36, parts[0]);
    EXPECT_EQ(std::memcmp(values[0].data(), expected.data(), 36 * sizeof(float)), 0) << ops->name;
  }
}

TEST(Store, PutsEveryElementInItsPlaceAndNothingElsewhere) {
  const Spec spec{KvType::kF16, 40, 36, 1};
  for (const Ops* ops : equal_tables()) {
    for (const KvType type : {KvType::kF16, KvType::kF32}) {  // q8_0: kv_q8_0_test.cc
      const size_t bytes = type == KvType::kF16 ? 2 : 4;
      for (const int slot : {0, 31, kBlock - 1}) {
        GuardedBuffer<std::byte> k(static_cast<size_t>(kBlock * spec.head_dim) * bytes);
        GuardedBuffer<std::byte> v(static_cast<size_t>(kBlock * spec.value_dim) * bytes);
        std::memset(k.data(), 0, k.size());
        std::memset(v.data(), 0, v.size());
        std::vector<float> values(static_cast<size_t>(spec.head_dim));
        for (int i = 0; i < spec.head_dim; ++i)
          values[static_cast<size_t>(i)] = static_cast<float>(i + 1);
        ops->store_k(type, values.data(), spec.head_dim, slot, k.data());
        ops->store_v(type, values.data(), spec.value_dim, slot, v.data());
        const auto at = [&](const auto& block, int64_t i) {
          float value = 0;
          uint16_t half = 0;
          std::memcpy(&value, block.data() + i * 4, type == KvType::kF32 ? 4 : 0);
          std::memcpy(&half, block.data() + i * 2, type == KvType::kF16 ? 2 : 0);
          return type == KvType::kF32 ? value : f16_to_f32(half);
        };
        for (int64_t i = 0; i < kBlock * spec.head_dim; ++i) {
          ASSERT_EQ(at(k, i), i % kBlock == slot ? static_cast<float>(i / kBlock + 1) : 0)
              << ops->name;
        }
        for (int64_t i = 0; i < kBlock * spec.value_dim; ++i) {
          ASSERT_EQ(at(v, i),
                    i / spec.value_dim == slot ? static_cast<float>(i % spec.value_dim + 1) : 0)
              << ops->name;
        }
      }
    }
  }
}

TEST(Attend, StaysFiniteWhenScoresAreFarApart) {
  const Spec spec{KvType::kF32, 64, 64, 300, 30};
  for (const Ops* ops : equal_tables()) {
    const Cache cache(*ops, spec);
    expect_near_double(spec, cache, attend(*ops, spec, cache));
  }
}

TEST(Attend, DoesNotLookBehindThePositions) {
  // The same first 70 positions in a cache of 70 and of 128: what follows is NaN in one and numbers
  // in the other.
  for (const KvType type : kKvTypes) {
    Spec spec{type, 40, 36, 70};
    Spec longer = spec;
    longer.positions = 128;
    for (const Ops* ops : equal_tables()) {
      const auto expected = attend(*ops, spec, Cache(*ops, spec));
      const Cache cache(*ops, longer);
      EXPECT_TRUE(same_bytes(attend(*ops, spec, cache), expected)) << ops->name;
      EXPECT_FALSE(same_bytes(attend(*ops, longer, cache), expected)) << ops->name;
    }
  }
}

}  // namespace
}  // namespace kernels::testing
