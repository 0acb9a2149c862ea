// Packed activations: equal bits in every table, the promised error, exact sums, and what happens
// at the ends of float.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/activations.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/matrix_case.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

constexpr int64_t kLengths[] = {32, 64, 96, 224, 256, 288, 512, 1408};

size_t block_count(int64_t k) {
  return static_cast<size_t>(k + 255) / 256;
}

GuardedBuffer<ActivationBlock> quantise(const Ops& ops, const GuardedBuffer<float>& x) {
  const auto k = static_cast<int64_t>(x.size());
  GuardedBuffer<ActivationBlock> packed(block_count(k));
  ops.quantise(x.data(), k, reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

GuardedBuffer<ActivationBlock32> quantise_32(const Ops& ops, const GuardedBuffer<float>& x) {
  GuardedBuffer<ActivationBlock32> packed(x.size() / 32);
  ops.quantise_32(x.data(), static_cast<int64_t>(x.size()),
                  reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

/// Values whose size changes from sub-block to sub-block by up to 10^`decades`.
GuardedBuffer<float> varied(int64_t k, uint32_t seed, float decades) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> size(-decades, decades);
  GuardedBuffer<float> x(static_cast<size_t>(k));
  float scale = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 32 == 0) scale = std::pow(10.0f, size(random));
    x[i] = normal(random) * scale;
  }
  return x;
}

TEST(Quantise, IsEqualInAllTables) {
  for (const int64_t k : kLengths) {
    for (const float decades : {0.0f, 1.0f, 30.0f}) {
      const auto x = varied(k, static_cast<uint32_t>(k), decades);
      const auto expected = quantise(scalar(), x);
      for (const Ops* ops : equal_tables()) {
        EXPECT_TRUE(same_bytes(quantise(*ops, x), expected)) << ops->name << " k " << k;
        EXPECT_TRUE(same_bytes(quantise_32(*ops, x), quantise_32(scalar(), x))) << ops->name;
      }
    }
  }
}

TEST(Quantise, ErrorIsHalfAStepOfTheSubBlock) {
  for (const float decades : {0.0f, 0.5f, 2.0f}) {
    const auto x = varied(2048, 3, decades);
    const auto packed = quantise(scalar(), x);
    const auto seen = unpack_activations(ActivationFormat::kQ8,
                                         reinterpret_cast<const std::byte*>(packed.data()), 2048);
    for (size_t i = 0; i < x.size(); ++i) {
      const ActivationBlock& block = packed[i / 256];
      const double step =
          std::ldexp(double{block.scale}, static_cast<int>(block.shift[i % 256 / 32]));
      EXPECT_LE(std::fabs(seen[i] - double{x[i]}), 0.5 * step * (1 + 0x1p-14)) << i;
    }
  }
}

TEST(Quantise32, ErrorIsHalfAStepAndTheStartTakesTheOffsetOut) {
  for (const float decades : {0.0f, 2.0f}) {
    const auto x = varied(1408, 4, decades);
    const auto packed = quantise_32(scalar(), x);
    for (size_t b = 0; b < packed.size(); ++b) {
      int sum = 0;
      for (size_t i = 0; i < 32; ++i) {
        sum += packed[b].x[i];
        const double step = packed[b].scale;
        const double seen = step * packed[b].x[i];
        EXPECT_LE(std::fabs(seen - double{x[32 * b + i]}), 0.5 * step * (1 + 0x1p-14));
      }
      EXPECT_EQ(packed[b].start, -128 * sum);
    }
  }
}

TEST(Quantise, ShiftIsTheSmallestThatHoldsTheSubBlock) {
  GuardedBuffer<float> x(256);
  const float largest[8] = {8, 4, 2, 1, 0.5f, 4.01f, 2.01f, 1.01f};
  for (size_t i = 0; i < 256; ++i) x[i] = largest[i / 32] * (i % 32 == 5 ? 1.0f : 0.3f);
  const auto packed = quantise(scalar(), x);
  const uint32_t expected[8] = {3, 2, 1, 0, 0, 3, 2, 1};
  for (size_t j = 0; j < 8; ++j) EXPECT_EQ(packed[0].shift[j], expected[j]) << j;
  EXPECT_EQ(packed[0].x[5], 127);
  EXPECT_EQ(packed[0].scale, 8.0f / 127.0f * 0.125f);
}

TEST(Quantise, SumsAreThoseOfTheCodes) {
  const auto x = varied(1408, 5, 1);
  const auto packed = quantise(scalar(), x);
  for (size_t b = 0; b < packed.size(); ++b) {
    const ActivationBlock& block = packed[b];
    for (int j = 0; j < 8; ++j) {
      int halves[2] = {};
      for (int i = 0; i < 32; ++i) halves[i / 16] += block.x[32 * j + i];
      const int factor = 1 << block.shift[j];
      EXPECT_EQ(block.sums_of_16[pair_order(2 * j)], halves[0] * factor);
      EXPECT_EQ(block.sums_of_16[pair_order(2 * j + 1)], halves[1] * factor);
      EXPECT_EQ(block.sums_of_32[pair_order(j)], (halves[0] + halves[1]) * factor);
    }
  }
}

TEST(Quantise, PairOrderSplitsFoursIntoEvenAndOdd) {
  const int expected[8] = {0, 2, 1, 3, 4, 6, 5, 7};  // word 0 = (0, 2), word 1 = (1, 3), …
  for (int position = 0; position < 8; ++position) {
    EXPECT_EQ(pair_order(expected[position]), position);
  }
}

TEST(Quantise, CodesNeverReachMinus128) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 2000; ++round) {
    GuardedBuffer<float> x(32);
    const float top =
        std::bit_cast<float>(0x0da24261u + static_cast<uint32_t>(random() % 0x71000000u));
    for (float& value : x.span()) value = random() % 2 == 0 ? -top : top;
    const auto packed = quantise(scalar(), x);
    for (size_t i = 0; i < 32; ++i) ASSERT_EQ(std::abs(packed[0].x[i]), 127) << top;
    const auto packed_32 = quantise_32(scalar(), x);
    for (size_t i = 0; i < 32; ++i) ASSERT_EQ(std::abs(packed_32[0].x[i]), 127) << top;
    for (const Ops* ops : equal_tables()) {
      ASSERT_TRUE(same_bytes(quantise(*ops, x), packed)) << top;
      ASSERT_TRUE(same_bytes(quantise_32(*ops, x), packed_32)) << top;
    }
  }
}

TEST(Quantise, ZeroAndTinyBlocksAreZero) {
  for (const float value : {0.0f, -0.0f, 1e-40f, -9e-31f}) {
    GuardedBuffer<float> x(256);
    for (float& v : x.span()) v = value;
    for (const Ops* ops : equal_tables()) {
      const auto packed = quantise(*ops, x);
      EXPECT_EQ(packed[0].scale, 0) << ops->name;
      for (const int8_t code : packed[0].x) EXPECT_EQ(code, 0);
      EXPECT_EQ(quantise_32(*ops, x)[0].scale, 0) << ops->name;
    }
  }
}

TEST(Quantise, LargestFloatStaysFinite) {
  GuardedBuffer<float> x(64);
  for (float& v : x.span()) v = std::numeric_limits<float>::max();
  for (const Ops* ops : equal_tables()) {
    const auto packed = quantise(*ops, x);
    EXPECT_TRUE(std::isfinite(packed[0].scale)) << ops->name;
    EXPECT_EQ(packed[0].x[63], 127);
    EXPECT_EQ(packed[0].x[64], 0);  // behind the column
  }
}

TEST(Quantise, NotFiniteElementsMakeTheScaleOfTheirBlockNaN) {
  for (const float bad : {INFINITY, -INFINITY, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t{0}, size_t{255}, size_t{300}}) {
      auto x = varied(512, 1, 0);
      x[at] = bad;
      const auto expected = quantise(scalar(), x);
      for (size_t b = 0; b < 2; ++b) EXPECT_EQ(std::isnan(expected[b].scale), b == at / 256);
      const auto expected_32 = quantise_32(scalar(), x);
      for (size_t b = 0; b < 16; ++b) EXPECT_EQ(std::isnan(expected_32[b].scale), b == at / 32);
      for (const Ops* ops : equal_tables()) {
        EXPECT_TRUE(same_bytes(quantise(*ops, x), expected)) << ops->name;
        EXPECT_TRUE(same_bytes(quantise_32(*ops, x), expected_32)) << ops->name;
      }
    }
  }
}

}  // namespace
}  // namespace kernels::testing
