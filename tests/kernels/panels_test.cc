// Sizes and places: what others allocate for, and that packed weights can be read back.
#include <gtest/gtest.h>

#include "kernels/activations.h"
#include "kernels/panels.h"
#include "tests/kernels/matrix_case.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

TEST(PanelBytes, AreTheBytesOfTheFileRoundedUp) {
  const struct {
    Layout layout;
    TensorType type;
    int64_t k;
    size_t bytes;
  } cases[] = {
      {Layout::kF32, TensorType::kF32, 36, 36 * 64},
      {Layout::kF16, TensorType::kF16, 36, 36 * 32},
      {Layout::kF16, TensorType::kF16, 37, 37 * 32 + 32},
      {Layout::kBF16, TensorType::kBF16, 64, 64 * 32},
      {Layout::kQ8_0, TensorType::kQ8_0, 64, 16 * 68},
      {Layout::kQ8_0, TensorType::kQ8_0, 32, 576},
      {Layout::kQ8_0, TensorType::kQ8_0, 1408, 22 * 16 * 68},
      {Layout::kQ4_K, TensorType::kQ4_K, 512, 2 * 16 * 144},
      {Layout::kQ6_K, TensorType::kQ6_K, 512, 2 * (16 * 210 + 32)},
      {Layout::kMXFP4, TensorType::kMXFP4, 2880, 45 * 16 * 36},
      {Layout::kMXFP4, TensorType::kMXFP4, 96, 16 * 36 + 64 + 256},
      {Layout::kRows, TensorType::kQ6_K, 256, 16 * 210 + 32},
      {Layout::kRows, TensorType::kQ4_0, 32, 16 * 18 + 32},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(panel_bytes(c.layout, c.type, c.k), c.bytes) << layout_name(c.layout) << ' ' << c.k;
    EXPECT_EQ(panel_bytes(c.layout, c.type, c.k) % kAlignment, 0u);
  }
}

TEST(ActivationBytes, HoldAColumnInAnOddNumberOfCacheLines) {
  for (const int64_t k : {1, 32, 36, 256, 288, 1408, 2048, 4096}) {
    const size_t floats = activation_bytes(ActivationFormat::kF32, k);
    const size_t blocks = activation_bytes(ActivationFormat::kQ8, k);
    EXPECT_GE(floats, static_cast<size_t>(k) * 4);
    const size_t blocks_32 = activation_bytes(ActivationFormat::kQ8_32, k);
    EXPECT_GE(blocks_32, static_cast<size_t>(k + 31) / 32 * sizeof(ActivationBlock32));
    EXPECT_GE(blocks, static_cast<size_t>(k + 255) / 256 * sizeof(ActivationBlock));
    for (const size_t bytes : {floats, blocks, blocks_32})
      EXPECT_EQ(bytes % (2 * kAlignment), kAlignment);
  }
}

TEST(PackPanel, MissingRowsAreZeroAndOthersDoNotMove) {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K,
        TensorType::kMXFP4, TensorType::kQ5_K}) {
    const MatrixCase matrix({.type = type, .k = 512, .rows = 16, .columns = 1});
    // A single row in a panel of its own gives what it gives beside fifteen others.
    const std::vector<float> all = run(matrix, scalar(), {0, 16, 0, 1});
    const std::vector<float> one = run(matrix, scalar(), {0, 1, 0, 1});
    EXPECT_EQ(one[0], all[0]) << type_info(type).name;
    const auto packed = pack_rows(matrix, scalar(), 0, 1);
    const auto again = pack_rows(matrix, scalar(), 0, 1);
    EXPECT_TRUE(same_bytes(packed, again)) << "a byte of the panel was left as it was";
  }
}

// Four rows are packed at once where there are four, the others one by one.
TEST(PackPanel, RowsAreTheSameAloneAndInFours) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K}) {
    const bool plain = type_info(type).block_weights == 1;
    const int64_t k = plain ? 45 : type == TensorType::kQ8_0 ? 96 : 512;
    const MatrixCase matrix({.type = type, .k = k, .rows = 16, .columns = 1});
    const std::vector<float> all = run(matrix, scalar(), {0, 16, 0, 1});
    for (int count = 1; count < 16; ++count) {
      const std::vector<float> some = run(matrix, scalar(), {0, count, 0, 1});
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()))
          << type_info(type).name << ", " << count << " rows";
    }
  }
}

TEST(PackPanel, WritesEveryByteOfThePanel) {
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0, TensorType::kQ4_K,
                                TensorType::kQ6_K, TensorType::kMXFP4, TensorType::kQ4_0}) {
    const bool groups = type == TensorType::kQ8_0 || type == TensorType::kMXFP4;
    const int64_t k = type == TensorType::kF16 ? 37 : groups ? 96 : 256;
    const MatrixCase matrix({.type = type, .k = k, .rows = 5, .columns = 0});
    const Layout layout = layout_for(type, scalar());
    const size_t bytes = panel_bytes(layout, type, k);
    GuardedBuffer<std::byte> first(bytes), second(bytes);
    std::memset(first.data(), 0x00, bytes);
    std::memset(second.data(), 0xff, bytes);
    pack_panel(layout, type, matrix.rows.data(), 5, k, first.data());
    pack_panel(layout, type, matrix.rows.data(), 5, k, second.data());
    EXPECT_TRUE(same_bytes(first, second)) << type_info(type).name;
  }
}

TEST(LayoutName, IsDifferentForEveryLayout) {
  for (int a = 0; a < kLayoutCount; ++a) {
    for (int b = 0; b < a; ++b) {
      EXPECT_STRNE(layout_name(static_cast<Layout>(a)), layout_name(static_cast<Layout>(b)));
    }
  }
}

}  // namespace
}  // namespace kernels::testing
