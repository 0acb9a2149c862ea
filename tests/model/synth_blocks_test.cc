// Random blocks of every type: finite, of mean zero and the deviation asked for, the same however
// they are cut.
#include "model/synth_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/ops.h"
#include "model/synth_types.h"
#include "tests/model/tiny_synth.h"

namespace model {
namespace {

using Bytes = std::vector<std::byte>;
constexpr int kRowLength = 256, kRows = 2000;

Bytes random_rows(kernels::TensorType type, double deviation, uint64_t seed = 1,
                  uint64_t stream = 5) {
  Bytes bytes(static_cast<size_t>(kernels::row_bytes(type, kRowLength) * kRows));
  SynthBlocks(type, deviation).fill(SynthBits(seed, stream), 0, bytes);
  return bytes;
}

std::vector<float> values_of(kernels::TensorType type, const Bytes& bytes) {
  std::vector<float> values(static_cast<size_t>(kRowLength * kRows));
  const auto row_bytes = static_cast<size_t>(kernels::row_bytes(type, kRowLength));
  for (size_t row = 0; row < kRows; row++)
    kernels::dequantise_row(type, bytes.data() + row * row_bytes, kRowLength,
                            values.data() + row * kRowLength);
  return values;
}

class EveryType : public testing::TestWithParam<const char*> {
 protected:
  const kernels::TensorType type_ = *synth_weight_type(GetParam());
};

TEST_P(EveryType, ValuesHaveTheDeviationAskedFor) {
  // 1 of an embedding, 0.022 of rows of 2048, 0.003 of a projection back in a deep model.
  for (const double deviation : {1.0, 0.022, 0.003}) {
    double sum = 0, squares = 0, largest = 0;
    for (const float value : values_of(type_, random_rows(type_, deviation))) {
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
      squares += static_cast<double>(value) * static_cast<double>(value);
      largest = std::max(largest, std::fabs(static_cast<double>(value)));
    }
    const double count = kRowLength * kRows;
    EXPECT_NEAR(std::sqrt(squares / count) / deviation, 1, 0.03) << deviation;
    // Signs of scales are shared by up to 256 values.
    EXPECT_NEAR(sum / count / deviation, 0, 0.03) << deviation;
    EXPECT_LT(largest / deviation, 8) << "outliers would blind quantised activations";
  }
}

TEST_P(EveryType, AnyPartGivesTheSameBytes) {
  const Bytes whole = random_rows(type_, 0.02);
  const SynthBlocks blocks(type_, 0.02);
  const SynthBits bits(1, 5);
  const auto block = static_cast<size_t>(kernels::type_info(type_).block_bytes);
  const auto step = static_cast<size_t>(blocks.group_bytes()) * 3;
  for (size_t at = 0; at < whole.size(); at += step) {
    Bytes part(std::min(step - block, whole.size() - at));  // ends inside a group
    blocks.fill(bits, at, part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<ptrdiff_t>(at)));
  }
}

TEST_P(EveryType, SeedsAndTensorsDiffer) {
  const Bytes one = random_rows(type_, 0.02);
  EXPECT_EQ(one, random_rows(type_, 0.02));
  EXPECT_NE(one, random_rows(type_, 0.02, 2));
  EXPECT_NE(one, random_rows(type_, 0.02, 1, 6));
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::ValuesIn(model_test::kSynthTypes),
                         [](const auto& info) { return std::string(info.param); });

TEST(SynthBlocks, EightBitCodesAvoidMinus128) {
  const Bytes bytes = random_rows(kernels::TensorType::kQ8_0, 0.02);
  std::set<int> codes;
  for (size_t i = 0; i < bytes.size(); i++)
    if (i % 34 >= 2) codes.insert(static_cast<int8_t>(bytes[i]));
  EXPECT_EQ(codes.size(), 255u);
  EXPECT_FALSE(codes.contains(-128));
}

TEST(SynthBlocks, NormsAreNearOne) {
  std::vector<float> norm(1000), tail(10);
  fill_norm(SynthBits(1, 2), 0, norm);
  fill_norm(SynthBits(1, 2), 990, tail);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), norm.end() - 10));
  const auto [low, high] = std::ranges::minmax(norm);
  EXPECT_GE(low, 0.9F);
  EXPECT_LT(low, 0.91F);
  EXPECT_GT(high, 1.09F);
  EXPECT_LE(high, 1.1F);
}

}  // namespace
}  // namespace model
