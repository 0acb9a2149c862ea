// Every tensor type against published rows, to the bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/half.h"
#include "kernels/ops.h"
#include "tests/kernels/golden_rows.h"

namespace kernels {
namespace {

using kernels_test::golden_path;
using kernels_test::kGoldenColumns;
using kernels_test::read_bytes;
using kernels_test::read_floats;
using kernels_test::read_index;

/// All rows of a file of rows of kGoldenColumns weights, dequantised one by one.
std::vector<float> dequantise_rows(TensorType type, const std::vector<std::byte>& rows) {
  const int64_t bytes = row_bytes(type, kGoldenColumns);
  const int64_t count = static_cast<int64_t>(rows.size()) / bytes;
  std::vector<float> out(static_cast<size_t>(count * kGoldenColumns));
  for (int64_t i = 0; i < count; ++i) {
    dequantise_row(type, rows.data() + i * bytes, kGoldenColumns, out.data() + i * kGoldenColumns);
  }
  return out;
}

/// How many values differ in a bit.
int64_t count_differences(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  }
  return count;
}

TEST(Formats, MatchTheIndex) {
  const auto index = read_index();
  EXPECT_EQ(index.size(), 23u);
  for (const auto& [name, fields] : index) {
    SCOPED_TRACE(name);
    const auto type = type_by_name(name);
    ASSERT_TRUE(type.has_value());
    const TypeInfo& info = type_info(*type);
    EXPECT_EQ(static_cast<int64_t>(info.type), fields.at("ggml_type"));
    EXPECT_EQ(info.block_weights, fields.at("block"));
    EXPECT_EQ(info.block_bytes, fields.at("block_bytes"));
    EXPECT_EQ(row_bytes(*type, fields.at("cols")) * fields.at("rows"), fields.at("bytes"));
    EXPECT_EQ(find_type(static_cast<uint32_t>(fields.at("ggml_type"))), &info);
  }
}

TEST(Formats, UnknownTypesAreNone) {
  EXPECT_EQ(find_type(4), nullptr);  // once Q4_2, withdrawn
  EXPECT_EQ(find_type(24), nullptr);
  EXPECT_EQ(find_type(0xffffffff), nullptr);
  EXPECT_FALSE(type_by_name("q4_k").has_value());
  EXPECT_FALSE(type_by_name("Q4_K ").has_value());
  EXPECT_FALSE(type_by_name("").has_value());
}

TEST(Dequantise, GoldenRowsAreEqual) {
  int files = 0;
  for (const auto& [name, fields] : read_index()) {
    const TensorType type = type_by_name(name).value();
    for (const std::string suffix : {"", "-codes"}) {
      const bool plain = type_info(type).block_weights == 1;
      if (plain && !suffix.empty()) continue;
      SCOPED_TRACE(name + suffix);
      const auto rows = read_bytes(golden_path(name + suffix + ".bin"));
      const auto expected = read_floats(golden_path(name + suffix + ".f32"));
      ASSERT_FALSE(rows.empty());
      EXPECT_EQ(count_differences(dequantise_rows(type, rows), expected), 0);
      ++files;
    }
  }
  EXPECT_EQ(files, 43);
}

// The comparison above would notice: flips each bit of the first block that is not all zero.
TEST(Dequantise, AFlippedBitIsNoticed) {
  for (const auto& [name, fields] : read_index()) {
    SCOPED_TRACE(name);
    const TensorType type = type_by_name(name).value();
    const bool plain = type_info(type).block_weights == 1;
    const std::string stem = name + (plain ? "" : "-codes");
    const auto rows = read_bytes(golden_path(stem + ".bin"));
    const auto expected = read_floats(golden_path(stem + ".f32"));
    ASSERT_FALSE(rows.empty());
    int64_t unnoticed = 0;
    const int bits = type_info(type).block_bytes * 8;
    for (int bit = 0; bit < bits; ++bit) {
      auto broken = rows;
      broken[static_cast<size_t>(bit) / 8] ^= std::byte{1} << (bit % 8);
      unnoticed += count_differences(dequantise_rows(type, broken), expected) == 0 ? 1 : 0;
    }
    // Every bit of a block has a meaning, but a sub-scale of 0 (and the zero of MXFP4, which has a
    // sign) can hide some.
    EXPECT_LE(unnoticed, bits / 8);
  }
}

TEST(Dequantise, APartOfARowGivesTheSameValues) {
  for (const auto& [name, fields] : read_index()) {
    SCOPED_TRACE(name);
    const TensorType type = type_by_name(name).value();
    const TypeInfo& info = type_info(type);
    const auto rows = read_bytes(golden_path(name + ".bin"));
    // Also from an odd address.
    std::vector<std::byte> moved(rows.size() + 1);
    std::copy(rows.begin(), rows.end(), moved.begin() + 1);
    std::vector<float> whole(kGoldenColumns), part(kGoldenColumns);
    dequantise_row(type, rows.data(), kGoldenColumns, whole.data());
    for (int64_t at = 0; at < kGoldenColumns; at += info.block_weights) {
      dequantise_row(type, moved.data() + 1 + row_bytes(type, at), info.block_weights,
                     part.data() + at);
    }
    EXPECT_EQ(count_differences(whole, part), 0);
  }
}

TEST(DequantiseDeathTest, ARowOfHalfABlockIsOurBug) {
  std::vector<std::byte> row(1000);
  std::vector<float> out(512);
  EXPECT_DEATH(dequantise_row(TensorType::kQ4_K, row.data(), 128, out.data()), "whole blocks");
}

// Independent of the bit tricks: value = sign * mantissa * 2^exponent.
double half_by_definition(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, AllFiniteHalvesAreExactAndComeBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if ((half & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isinf(value), (half & 0x3ff) == 0);
      EXPECT_EQ(std::isnan(value), (half & 0x3ff) != 0);
      EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0);
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), half_by_definition(half));
    ASSERT_EQ(f32_to_f16_clamped(value), half);
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    // Two neighbouring halves and their middle are exact floats.
    const float middle = (f16_to_f32(low) + f16_to_f32(high)) / 2;
    const uint16_t even = bits % 2 == 0 ? low : high;
    ASSERT_EQ(f32_to_f16_clamped(middle), even);
    ASSERT_EQ(f32_to_f16_clamped(-middle), even | 0x8000);
    ASSERT_EQ(f32_to_f16_clamped(std::nextafterf(middle, 0.0f)), low);
    ASSERT_EQ(f32_to_f16_clamped(std::nextafterf(middle, 1e9f)), high);
  }
}

TEST(Half, ClampsAndKeepsNan) {
  EXPECT_EQ(f32_to_f16_clamped(65504.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16_clamped(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16_clamped(1e30f), 0x7bff);
  EXPECT_EQ(f32_to_f16_clamped(-INFINITY), 0xfbff);
  EXPECT_EQ(f32_to_f16_clamped(1e-30f), 0);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16_clamped(NAN))));
}

}  // namespace
}  // namespace kernels
