// Keys and values in q8_0: what is stored is what kv_type.h says, in every table to the bit, and
// nothing else is touched.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/limits.h"
#include "kernels/half.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/stored_kv.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

constexpr int kBlock = base::kKvBlockPositions;
constexpr auto kType = KvType::kQ8_0;
constexpr std::byte kUntouched{0x5a};

std::vector<const Ops*> all_tables() {
  std::vector<const Ops*> tables = equal_tables();
  tables.push_back(&table("reference"));
  return tables;
}

/// A block into which `ops` has written one position.
GuardedBuffer<std::byte> stored(const Ops& ops, Of of, const std::vector<float>& values, int slot) {
  GuardedBuffer<float> x(values.size());
  std::copy(values.begin(), values.end(), x.data());
  const int dims = static_cast<int>(values.size());
  GuardedBuffer<std::byte> block(kBlock * kv_row_bytes(kType, dims));
  std::memset(block.data(), static_cast<int>(kUntouched), block.size());
  (of == Of::kKeys ? ops.store_k : ops.store_v)(kType, x.data(), dims, slot, block.data());
  return block;
}

float back(Of of, const GuardedBuffer<std::byte>& block, int64_t dims, int slot, int64_t dim) {
  return stored_element(kType, of, block.data(), dims, slot, dim);
}

std::vector<float> normals(size_t n, float sigma) {
  std::mt19937_64 random(n);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> x(n);
  for (float& a : x) a = normal(random);
  return x;
}

TEST(KvType, NamesAndSizes) {
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0})
    EXPECT_EQ(find_kv_type(kv_type_name(type)), type);
  EXPECT_FALSE(find_kv_type("q4_0").has_value());
  EXPECT_FALSE(find_kv_type("").has_value());
  EXPECT_EQ(kv_row_bytes(KvType::kF16, 72), 144u);
  EXPECT_EQ(kv_row_bytes(KvType::kF32, 72), 288u);
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 128), 128u + 8);  // 34 / 64 of an f16's
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 72), 72u + 6);    // a group of 8
  EXPECT_EQ(kv_row_bytes(KvType::kQ8_0, 1), 3u);
}

TEST(KvQ8_0, StoresWhatIsDefinedAndNothingElsewhere) {
  for (const int dims : {1, 8, 16, 17, 31, 32, 33, 40, 64, 72, 96, 128, 576}) {
    for (const float sigma : {1e-6f, 1e-3f, 1.0f, 1e6f}) {
      const auto x = normals(static_cast<size_t>(dims), sigma);
      for (const Of of : {Of::kKeys, Of::kValues}) {
        for (const int slot : {0, 31, kBlock - 1}) {
          SCOPED_TRACE(std::to_string(dims) + " of " + std::to_string(sigma));
          const auto expected = stored(scalar(), of, x, slot);
          std::vector<bool> touched(expected.size());
          for (int dim = 0; dim < dims; ++dim) {
            float top = 0;  // of the group
            for (int i = dim / 32 * 32; i < std::min(dims, dim / 32 * 32 + 32); ++i)
              top = std::max(top, std::fabs(x[static_cast<size_t>(i)]));
            const float value = x[static_cast<size_t>(dim)];
            const Q8Offsets at = q8_offsets(of, dims, slot, dim);
            touched[static_cast<size_t>(at.code)] = touched[static_cast<size_t>(at.scale)] =
                touched[static_cast<size_t>(at.scale) + 1] = true;
            uint16_t scale;
            std::memcpy(&scale, expected.data() + at.scale, 2);
            ASSERT_EQ(scale, f32_to_f16_clamped(top / 127));
            const double step = f16_to_f32(scale);
            const double limit = std::max(step / 2 * (1 + 0x1p-16), 0x1p-18);
            ASSERT_NEAR(back(of, expected, dims, slot, dim), value, limit) << dim;
          }
          for (size_t i = 0; i < touched.size(); ++i)
            ASSERT_TRUE(touched[i] || expected.data()[i] == kUntouched) << i;
          for (const Ops* ops : all_tables())
            ASSERT_TRUE(same_bytes(stored(*ops, of, x, slot), expected)) << ops->name;
        }
      }
    }
  }
}

// Each group has a scale of its own: large elements of one do not spoil the others.
TEST(KvQ8_0, AGroupDoesNotFeelItsNeighbours) {
  std::vector<float> x = normals(72, 1);
  const auto alone = stored(scalar(), Of::kKeys, x, 3);
  for (size_t i = 32; i < 64; ++i) x[i] *= 1e4f;
  const auto beside = stored(scalar(), Of::kKeys, x, 3);
  int64_t changed = 0;
  for (int64_t dim = 0; dim < 72; ++dim) {
    if (back(Of::kKeys, alone, 72, 3, dim) == back(Of::kKeys, beside, 72, 3, dim)) continue;
    EXPECT_TRUE(dim >= 32 && dim < 64) << dim;
    ++changed;
  }
  EXPECT_GE(changed, 30);  // small ones are 0 in both
}

TEST(KvQ8_0, RoundsTiesToEvenAndKeepsItsRange) {
  // The scale is exactly 1.
  const std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, -126.5f, 0.49f, -127};
  const std::vector<float> expected = {127, 0, 2, 2, 0, -2, 126, -126, 0, -127};
  for (const Ops* ops : all_tables()) {
    const auto block = stored(*ops, Of::kValues, x, 1);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(back(Of::kValues, block, 10, 1, static_cast<int64_t>(i)), expected[i]) << ops->name;
  }
}

TEST(KvQ8_0, OfExtremes) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMost = 127 * kF16Max;
  const auto one = [](const Ops& ops, const std::vector<float>& x, int64_t dim) {
    return back(Of::kKeys, stored(ops, Of::kKeys, x, 0), static_cast<int64_t>(x.size()), 0, dim);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> groups = {{0, -0.0f, 0},    {1e-12f, -1e-30f, 1e-44f},
                                                  {kInf, 1, -kInf}, {3e38f, -3e38f, 1},
                                                  {1, nan, 3},      {nan, -nan, kInf}};
  for (const Ops* ops : all_tables()) {
    SCOPED_TRACE(ops->name);
    for (const auto& x : groups) {
      EXPECT_TRUE(same_bytes(stored(*ops, Of::kKeys, x, 5), stored(scalar(), Of::kKeys, x, 5)));
      EXPECT_TRUE(same_bytes(stored(*ops, Of::kValues, x, 5), stored(scalar(), Of::kValues, x, 5)));
    }
    for (const int64_t dim : {0, 1, 2}) {
      EXPECT_EQ(one(*ops, groups[0], dim), 0);
      EXPECT_EQ(one(*ops, groups[1], dim), 0);
      EXPECT_TRUE(std::isnan(one(*ops, groups[4], dim)));
      EXPECT_TRUE(std::isnan(one(*ops, groups[5], dim)));
    }
    EXPECT_EQ(one(*ops, groups[2], 0), kMost);
    EXPECT_EQ(one(*ops, groups[2], 1), 0);
    EXPECT_EQ(one(*ops, groups[2], 2), -kMost);
    EXPECT_EQ(one(*ops, groups[3], 0), kMost);
    EXPECT_EQ(one(*ops, groups[3], 1), -kMost);
    // A NaN spoils its group only.
    std::vector<float> two(40, 1.0f);
    two[35] = nan;
    EXPECT_EQ(one(*ops, two, 31), f16_to_f32(f32_to_f16_clamped(1.0f / 127)) * 127);
    EXPECT_TRUE(std::isnan(one(*ops, two, 32)));
  }
}

}  // namespace
}  // namespace kernels::testing
