// Products of matrices: every instruction set gives the bits of every other, for any split, and the
// value is right. Buffers end at protected pages throughout.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "tests/kernels/matrix_case.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

constexpr TensorType kSlowTypes[] = {TensorType::kIQ1_S,  TensorType::kIQ1_M, TensorType::kIQ2_XXS,
                                     TensorType::kIQ2_XS, TensorType::kIQ2_S, TensorType::kIQ3_XXS,
                                     TensorType::kIQ3_S};

std::vector<int64_t> lengths(TensorType type) {
  switch (type_info(type).block_weights) {
    case 1: return {1, 2, 3, 32, 36, 40, 63, 64, 65, 72, 127, 288};
    case 32: return {32, 64, 96, 256, 288, 320, 512, 1408};
    default: return {256, 512, 1536};
  }
}

/// All tables give the bytes of the scalar one, and those are right.
void expect_equal_and_right(const MatrixCase& matrix) {
  const std::vector<float> expected = run(matrix, scalar(), whole(matrix.spec));
  EXPECT_EQ(compare_with_double(matrix, scalar(), whole(matrix.spec), expected), "");
  for (const Ops* ops : equal_tables()) {
    EXPECT_TRUE(same_bytes(run(matrix, *ops, whole(matrix.spec)), expected))
        << describe(matrix.spec) << ": " << ops->name;
  }
}

class Matmul : public ::testing::TestWithParam<TensorType> {};

INSTANTIATE_TEST_SUITE_P(Types, Matmul, ::testing::ValuesIn(kFastTypes),
                         [](const auto& info) { return std::string(type_info(info.param).name); });

TEST_P(Matmul, HasAFastLayoutInEveryTable) {
  for (const Ops* ops : equal_tables()) EXPECT_NE(layout_for(GetParam(), *ops), Layout::kRows);
}

TEST_P(Matmul, IsEqualAndRightForAllLengths) {
  for (const int64_t k : lengths(GetParam())) {
    for (const int64_t rows : {1, 16, 35}) {
      const MatrixCase matrix({.type = GetParam(), .k = k, .rows = rows, .columns = 7});
      expect_equal_and_right(matrix);
    }
  }
}

TEST_P(Matmul, IsEqualAndRightForAllColumnCounts) {
  for (const int columns : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 67, 107}) {
    const MatrixCase matrix({.type = GetParam(),
                             .k = 768,
                             .rows = 21,
                             .columns = columns,
                             .values = Values::kHeavy,
                             .seed = 7});
    expect_equal_and_right(matrix);
  }
}

TEST_P(Matmul, IsEqualAndRightForExtremeScalesCodesAndValues) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    const MatrixCase matrix({.type = GetParam(),
                             .k = 1536,
                             .rows = 20,
                             .columns = 6,
                             .codes = Codes::kExtreme,
                             .values = Values::kExtreme,
                             .seed = seed});
    expect_equal_and_right(matrix);
  }
}

TEST_P(Matmul, DependsNeitherOnTheSplitOfRowsNorOfColumns) {
  const CaseSpec spec{.type = GetParam(), .k = 512, .rows = 72, .columns = 9, .seed = 3};
  const MatrixCase matrix(spec);
  for (const Ops* ops : equal_tables()) {
    const std::vector<float> expected = run(matrix, *ops, whole(spec));
    for (const int64_t rows : {16, 32, 48}) {
      for (const int columns : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
        std::vector<float> y(expected.size());
        for (int64_t r = 0; r < spec.rows; r += rows) {
          for (int c = 0; c < spec.columns; c += columns) {
            const Part part{r, std::min(rows, spec.rows - r), c,
                            std::min(columns, spec.columns - c)};
            const std::vector<float> piece = run(matrix, *ops, part);
            for (int i = 0; i < part.columns; ++i) {
              std::copy_n(piece.begin() + i * part.row_count, part.row_count,
                          y.begin() + (c + i) * spec.rows + r);
            }
          }
        }
        ASSERT_TRUE(same_bytes(y, expected))
            << ops->name << ' ' << describe(spec) << ", parts of " << rows << " x " << columns;
      }
    }
  }
}

// The comparator above must see a wrong kernel. Here are two, built around the right ones.

/// Leaves out the last block of every row.
template <size_t layout>
void skip_last_block(const MatmulArgs& args) {
  const int64_t block = type_info(args.type).block_weights;
  const size_t stride = panel_bytes(static_cast<Layout>(layout), args.type, args.k);
  for (int64_t r = 0; r < args.row_count; r += kPanelRows) {
    std::vector<float*> y(args.y, args.y + args.columns);
    for (float*& p : y) p += r;
    MatmulArgs panel = args;
    panel.panels += static_cast<size_t>(r / kPanelRows) * stride;
    panel.row_count = std::min<int64_t>(kPanelRows, args.row_count - r);
    panel.k = args.k - block;
    panel.y = y.data();
    scalar().matmul[layout](panel);
  }
}

/// Gives one output another lowest bit.
template <size_t layout>
void flip_one_bit(const MatmulArgs& args) {
  scalar().matmul[layout](args);
  float& victim = args.y[args.columns - 1][args.row_count - 1];
  uint32_t bits;
  std::memcpy(&bits, &victim, sizeof bits);
  bits ^= 1;
  std::memcpy(&victim, &bits, sizeof bits);
}

struct Mutants {
  MatmulFunction skips, flips;
};
template <size_t... layout>
constexpr std::array<Mutants, sizeof...(layout)> mutants_of(std::index_sequence<layout...>) {
  return {Mutants{skip_last_block<layout>, flip_one_bit<layout>}...};
}
constexpr auto kMutants = mutants_of(std::make_index_sequence<kLayoutCount>());

TEST_P(Matmul, ComparatorSeesASkippedBlockAndAFlippedBit) {
  const MatrixCase matrix({.type = GetParam(), .k = 768, .rows = 35, .columns = 5});
  const size_t layout = static_cast<size_t>(layout_for(GetParam(), scalar()));
  Ops wrong = scalar();
  EXPECT_EQ(check_product(matrix, wrong, scalar()), "");
  wrong.matmul[layout] = kMutants[layout].skips;
  EXPECT_NE(check_product(matrix, wrong, scalar()), "");
  // The comparison with double arithmetic alone sees it, too: all tables might skip it.
  const Part part = whole(matrix.spec);
  EXPECT_NE(compare_with_double(matrix, wrong, part, run(matrix, wrong, part)), "");
  wrong.matmul[layout] = kMutants[layout].flips;
  EXPECT_NE(check_product(matrix, wrong, scalar()), "");
}

TEST(MatmulRows, ServesTypesWithoutAFastLayout) {
  for (const TensorType type : kSlowTypes) {
    for (const Ops* ops : equal_tables()) EXPECT_EQ(layout_for(type, *ops), Layout::kRows);
  }
  const MatrixCase matrix({.type = TensorType::kIQ3_S, .k = 512, .rows = 18, .columns = 3});
  expect_equal_and_right(matrix);
}

TEST(Matmul, NotFiniteActivationsMakeTheirColumnNaN) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        -std::numeric_limits<float>::infinity()}) {
    for (const TensorType type : kFastTypes) {
      MatrixCase matrix({.type = type, .k = 512, .rows = 16, .columns = 5});
      matrix.x[2][300] = bad;
      for (const Ops* ops : equal_tables()) {
        const std::vector<float> y = run(matrix, *ops, whole(matrix.spec));
        for (size_t i = 0; i < y.size(); ++i) {
          EXPECT_EQ(!std::isfinite(y[i]), i / 16 == 2) << ops->name << ' ' << type_info(type).name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kernels::testing
