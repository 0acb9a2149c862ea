// Sizes and places: what others allocate for, and that packed weights can be read back.
#include <gtest/gtest.h>

#include "kernels/activations.h"
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
      {Layout::kQ4_0, TensorType::kQ4_0, 160, 2 * 16 * 36 + 64 + 256},
      {Layout::kQ4_1, TensorType::kQ4_1, 160, 2 * 16 * 40 + 128 + 256},
      {Layout::kQ5_0, TensorType::kQ5_0, 160, 2 * 16 * 44 + 64 + 320},
      {Layout::kQ5_1, TensorType::kQ5_1, 160, 2 * 16 * 48 + 128 + 320},
      {Layout::kIQ4_NL, TensorType::kIQ4_NL, 160, 2 * 16 * 36 + 64 + 256},
      {Layout::kQ2_K, TensorType::kQ2_K, 512, 2 * 16 * 84},
      {Layout::kQ3_K, TensorType::kQ3_K, 512, 2 * (16 * 110 + 32)},
      {Layout::kQ5_K, TensorType::kQ5_K, 512, 2 * 16 * 176},
      {Layout::kIQ4_XS, TensorType::kIQ4_XS, 512, 2 * (16 * 136 + 64)},
      {Layout::kRows, TensorType::kQ6_K, 256, 16 * 210 + 32},
      {Layout::kRows, TensorType::kIQ3_S, 256, 16 * 110 + 32},
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

TEST(PackPanel, ARowDoesNotDependOnTheOthersOfItsPanel) {
  for (const TensorType type : kFastTypes) {
    // Half a group, and a few weights behind the last vector.
    const int block = type_info(type).block_weights;
    const int64_t k = block == 1 ? 45 : block == 32 ? 96 : 512;
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
  std::vector<TensorType> types(std::begin(kFastTypes), std::end(kFastTypes));
  types.push_back(TensorType::kIQ3_S);
  for (const TensorType type : types) {
    const int block = type_info(type).block_weights;
    for (const int64_t k : {block == 1 ? 37 : 3 * block, 2 * block}) {
      for (const int rows : {1, 5, 16}) {
        const MatrixCase matrix({.type = type, .k = k, .rows = rows, .columns = 0});
        const Layout layout = layout_for(type, scalar());
        const size_t bytes = panel_bytes(layout, type, k);
        GuardedBuffer<std::byte> first(bytes), second(bytes);
        std::memset(first.data(), 0x00, bytes);
        std::memset(second.data(), 0xff, bytes);
        pack_panel(layout, type, matrix.rows.data(), rows, k, first.data());
        pack_panel(layout, type, matrix.rows.data(), rows, k, second.data());
        EXPECT_TRUE(same_bytes(first, second)) << type_info(type).name << ' ' << k << ' ' << rows;
      }
    }
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
