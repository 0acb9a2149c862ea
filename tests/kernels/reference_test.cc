// The reference table against the definitions, written out once more in long double.
#include "kernels/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/limits.h"
#include "kernels/half.h"
#include "tests/kernels/golden_rows.h"
#include "tests/kernels/stored_kv.h"
#include "tests/kernels/whole_attention.h"

namespace kernels {
namespace {

using base::kKvBlockPositions;
using kernels_test::golden_path;
using kernels_test::kGoldenColumns;

/// Normal numbers from a fixed seed.
std::vector<float> random_floats(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(n));
  for (float& value : out) value = normal(random);
  return out;
}

/// Whether `got` is `exact` rounded to float32, up to what double sums of terms whose magnitudes
/// add up to `magnitude` may be off.
bool is_rounded(float got, long double exact, long double magnitude) {
  if (std::abs(exact) > 0x1.ffffffp127L) return std::isinf(got) && (got > 0) == (exact > 0);
  const long double tolerance = std::abs(exact) * 0x1.01p-24L + magnitude * 0x1p-48L + 0x1p-149L;
  return std::abs(static_cast<long double>(got) - exact) <= tolerance;
}

/// Rows of `parts` golden rows each, with their exact values.
struct GoldenMatrix {
  TensorType type;
  int64_t rows, k;
  std::vector<std::byte> bytes;  // [rows, row_bytes(k)]
  std::vector<float> values;     // [rows, k]
};

GoldenMatrix golden_matrix(TensorType type, int64_t rows, int parts) {
  const TypeInfo& info = type_info(type);
  const std::string stem = std::string(info.name) + (info.block_weights == 1 ? "" : "-codes");
  const auto bytes = kernels_test::read_bytes(golden_path(stem + ".bin"));
  const auto values = kernels_test::read_floats(golden_path(stem + ".f32"));
  const int64_t row = row_bytes(type, kGoldenColumns);
  const int64_t count = static_cast<int64_t>(bytes.size()) / row;
  GoldenMatrix matrix{type, rows, kGoldenColumns * parts, {}, {}};
  if (count == 0) return matrix;
  for (int64_t i = 0; i < rows * parts; ++i) {
    const int64_t from = i % count;
    matrix.bytes.insert(matrix.bytes.end(), bytes.begin() + from * row,
                        bytes.begin() + (from + 1) * row);
    matrix.values.insert(matrix.values.end(), values.begin() + from * kGoldenColumns,
                         values.begin() + (from + 1) * kGoldenColumns);
  }
  return matrix;
}

/// Panels of Layout::kRows as the engine would pack them.
std::vector<std::byte> pack(const GoldenMatrix& matrix) {
  const int64_t row = row_bytes(matrix.type, matrix.k);
  const int64_t panels = (matrix.rows + kPanelRows - 1) / kPanelRows;
  const auto stride = static_cast<int64_t>(panel_bytes(Layout::kRows, matrix.type, matrix.k));
  std::vector<std::byte> packed(static_cast<size_t>(panels * stride));
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t first = panel * kPanelRows;
    const auto count = static_cast<int>(std::min<int64_t>(kPanelRows, matrix.rows - first));
    pack_panel(Layout::kRows, matrix.type, matrix.bytes.data() + first * row, count, matrix.k,
               packed.data() + panel * stride);
  }
  return packed;
}

/// y [columns, rows] of `matrix` times the columns x [columns, k].
std::vector<float> multiply(const GoldenMatrix& matrix, const std::vector<std::byte>& panels,
                            const std::vector<float>& x) {
  const int64_t columns = static_cast<int64_t>(x.size()) / matrix.k;
  std::vector<float> y(static_cast<size_t>(columns * matrix.rows), -1);
  std::vector<const std::byte*> x_pointers;
  std::vector<float*> y_pointers;
  for (int64_t c = 0; c < columns; ++c) {
    x_pointers.push_back(reinterpret_cast<const std::byte*>(x.data() + c * matrix.k));
    y_pointers.push_back(y.data() + c * matrix.rows);
  }
  reference_ops().matmul[static_cast<size_t>(Layout::kRows)](
      {.panels = panels.data(),
       .row_count = matrix.rows,
       .k = matrix.k,
       .type = matrix.type,
       .x = x_pointers.data(),
       .y = y_pointers.data(),
       .columns = static_cast<int>(columns)});
  return y;
}

/// Values of y that are not the exact product rounded.
int64_t count_wrong(const GoldenMatrix& matrix, const std::vector<float>& x,
                    const std::vector<float>& y) {
  int64_t wrong = 0;
  for (size_t at = 0; at < y.size(); ++at) {
    const int64_t row = static_cast<int64_t>(at) % matrix.rows;
    const int64_t column = static_cast<int64_t>(at) / matrix.rows;
    long double exact = 0;
    long double magnitude = 0;
    for (int64_t i = 0; i < matrix.k; ++i) {
      const long double term =
          static_cast<long double>(matrix.values[static_cast<size_t>(row * matrix.k + i)]) *
          x[static_cast<size_t>(column * matrix.k + i)];
      exact += term;
      magnitude += std::abs(term);
    }
    wrong += is_rounded(y[at], exact, magnitude) ? 0 : 1;
  }
  return wrong;
}

TEST(ReferenceMatmul, EveryTypeIsTheExactProductRounded) {
  for (const auto& [name, fields] : kernels_test::read_index()) {
    SCOPED_TRACE(name);
    // 21 rows are a whole panel and a part of one; 1536 weights are a chunk and a part of one.
    const GoldenMatrix matrix = golden_matrix(type_by_name(name).value(), 21, 3);
    ASSERT_FALSE(matrix.bytes.empty());
    const auto x = random_floats(matrix.k * 3, 1);
    const auto y = multiply(matrix, pack(matrix), x);
    EXPECT_EQ(count_wrong(matrix, x, y), 0);
  }
}

TEST(ReferenceMatmul, TheComparisonNoticesABrokenWeight) {
  const GoldenMatrix matrix = golden_matrix(TensorType::kQ6_K, 16, 1);
  const auto x = random_floats(matrix.k, 2);
  auto panels = pack(matrix);
  EXPECT_EQ(count_wrong(matrix, x, multiply(matrix, panels, x)), 0);
  // One bit of the last row's last block.
  panels[static_cast<size_t>(16 * row_bytes(matrix.type, matrix.k)) - 100] ^= std::byte{1};
  EXPECT_EQ(count_wrong(matrix, x, multiply(matrix, panels, x)), 1);
}

TEST(ReferenceMatmul, AColumnDoesNotDependOnItsNeighbours) {
  const GoldenMatrix matrix = golden_matrix(TensorType::kQ5_K, 18, 2);
  const auto panels = pack(matrix);
  const auto x = random_floats(matrix.k * 131, 3);  // more than two tiles of columns
  const auto together = multiply(matrix, panels, x);
  for (const int64_t c : {0, 1, 63, 64, 65, 127, 128, 130}) {
    const auto alone =
        multiply(matrix, panels,
                 std::vector<float>(x.begin() + c * matrix.k, x.begin() + (c + 1) * matrix.k));
    for (int64_t row = 0; row < matrix.rows; ++row) {
      ASSERT_EQ(std::bit_cast<uint32_t>(alone[static_cast<size_t>(row)]),
                std::bit_cast<uint32_t>(together[static_cast<size_t>(c * matrix.rows + row)]));
    }
  }
}

TEST(ReferenceMatmul, OddLengthsOfPlainTypes) {
  for (const int64_t k : {1, 7, 36, 1031}) {
    GoldenMatrix matrix{TensorType::kF32, 5, k, {}, random_floats(5 * k, 4)};
    matrix.bytes.resize(matrix.values.size() * sizeof(float));
    std::memcpy(matrix.bytes.data(), matrix.values.data(), matrix.bytes.size());
    const auto x = random_floats(2 * k, 5);
    EXPECT_EQ(count_wrong(matrix, x, multiply(matrix, pack(matrix), x)), 0) << k;
  }
}

TEST(ReferenceOps, IsMarkedAndHasOneLayout) {
  const Ops& ops = reference_ops();
  EXPECT_STREQ(ops.name, "reference");
  EXPECT_TRUE(ops.is_reference);
  for (int layout = 0; layout < kLayoutCount; ++layout) {
    EXPECT_EQ(ops.matmul[layout] != nullptr, layout == static_cast<int>(Layout::kRows));
  }
}

TEST(ReferenceOpsDeathTest, NothingIsQuantised) {
  std::vector<float> x(256);
  std::vector<std::byte> out(1024);
  EXPECT_DEATH(reference_ops().quantise(x.data(), 256, out.data()), "float32 activations");
}

TEST(ReferenceOps, RmsNorm) {
  for (const int64_t n : {1, 3, 100, 2048}) {
    const auto x = random_floats(n, 6);
    const auto weight = random_floats(n, 7);
    long double squares = 0;
    for (const float value : x) squares += static_cast<long double>(value) * value;
    const long double root = std::sqrt(squares / n + static_cast<long double>(1e-5f));
    auto out = x;  // in place
    reference_ops().rms_norm(out.data(), weight.data(), n, 1e-5f, out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = x[i] / root * weight[i];
      ASSERT_TRUE(is_rounded(out[i], exact, std::abs(exact))) << out[i];
    }
  }
}

TEST(ReferenceOps, SiluMultiply) {
  auto gate = random_floats(1000, 8);
  const auto up = random_floats(1000, 9);
  gate[0] = -200;
  gate[1] = 200;
  gate[2] = 0;
  auto out = gate;  // out is gate
  reference_ops().silu_multiply(out.data(), up.data(), 1000, out.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const long double g = gate[i];
    const long double exact = g / (1 + std::exp(-g)) * up[i];
    ASSERT_TRUE(is_rounded(out[i], exact, std::abs(exact))) << gate[i];
  }
}

TEST(ReferenceOps, Sums) {
  const auto a = random_floats(77, 10);
  const auto b = random_floats(77, 11);
  auto sum = a;
  auto product = b;
  reference_ops().add(sum.data(), b.data(), 77, sum.data());
  reference_ops().multiply_add(0.3f, a.data(), 77, product.data());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(sum[i], a[i] + b[i]);
    ASSERT_EQ(product[i], std::fma(0.3f, a[i], b[i]));
  }
}

TEST(ReferenceOps, Softmax) {
  for (const int64_t n : {1, 2, 333}) {
    auto x = random_floats(n, 12);
    for (float& value : x) value *= 30;
    const auto before = x;
    long double sum = 0;
    for (const float value : before) sum += std::exp(static_cast<long double>(value) - before[0]);
    reference_ops().softmax(x.data(), n);
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = std::exp(static_cast<long double>(before[i]) - before[0]) / sum;
      ASSERT_TRUE(is_rounded(x[i], exact, exact)) << x[i];
    }
  }
}

TEST(ReferenceOps, ExpOfShiftedAndDivided) {
  const auto x = random_floats(77, 14);
  std::vector<float> out(x.size());
  reference_ops().exp(x.data(), 77, {.offset = 1.3f, .divisor = 0.7f}, out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::exp((static_cast<long double>(x[i]) - 1.3f) / 0.7f);
    ASSERT_TRUE(is_rounded(out[i], exact, exact)) << x[i];
  }
}

TEST(ReferenceOps, Rope) {
  const int dims = 12;
  std::vector<float> cos(6), sin(6);
  for (size_t i = 0; i < 6; ++i) {
    cos[i] = std::cos(static_cast<float>(i));
    sin[i] = std::sin(static_cast<float>(i));
  }
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves}) {
    const auto before = random_floats(16, 13);  // four more than are turned
    auto x = before;
    reference_ops().rope(pairs, cos.data(), sin.data(), dims, x.data());
    for (size_t i = 0; i < 6; ++i) {
      const size_t first = pairs == RopePairs::kInterleaved ? 2 * i : i;
      const size_t second = pairs == RopePairs::kInterleaved ? 2 * i + 1 : i + 6;
      const long double a = before[first];
      const long double b = before[second];
      EXPECT_TRUE(is_rounded(x[first], a * cos[i] - b * sin[i], 2));
      EXPECT_TRUE(is_rounded(x[second], a * sin[i] + b * cos[i], 2));
    }
    for (size_t i = 12; i < 16; ++i) EXPECT_EQ(x[i], before[i]);
  }
}

/// A sequence's K and V, stored through the table; what was not stored is NaN.
struct Cache {
  Cache(KvType type, int64_t positions, int head_dim, int value_dim) {
    const auto blocks =
        static_cast<size_t>((positions + kKvBlockPositions - 1) / kKvBlockPositions);
    const auto fill = [&](int dim) {
      return std::vector<std::byte>(kv_row_bytes(type, dim) * kKvBlockPositions, std::byte{0xff});
    };
    k_blocks.resize(blocks, fill(head_dim));
    v_blocks.resize(blocks, fill(value_dim));
    k = random_floats(positions * head_dim, 14);
    v = random_floats(positions * value_dim, 15);
    const Ops& ops = reference_ops();
    for (int64_t p = 0; p < positions; ++p) {
      const auto block = static_cast<size_t>(p / kKvBlockPositions);
      const auto slot = static_cast<int>(p % kKvBlockPositions);
      ops.store_k(type, k.data() + p * head_dim, head_dim, slot, k_blocks[block].data());
      ops.store_v(type, v.data() + p * value_dim, value_dim, slot, v_blocks[block].data());
      if (type != KvType::kQ8_0) continue;
      for (int d = 0; d < head_dim; ++d)
        k[static_cast<size_t>(p * head_dim + d)] = testing::stored_element(
            type, testing::Of::kKeys, k_blocks[block].data(), head_dim, slot, d);
      for (int d = 0; d < value_dim; ++d)
        v[static_cast<size_t>(p * value_dim + d)] = testing::stored_element(
            type, testing::Of::kValues, v_blocks[block].data(), value_dim, slot, d);
    }
    if (type == KvType::kF16) {
      for (float& value : k) value = f16_to_f32(f32_to_f16_clamped(value));
      for (float& value : v) value = f16_to_f32(f32_to_f16_clamped(value));
    }
    for (size_t i = 0; i < blocks; ++i) {
      k_pointers.push_back(k_blocks[i].data());
      v_pointers.push_back(v_blocks[i].data());
    }
  }
  std::vector<float> k, v;  // [positions, head_dim] and [positions, value_dim] as read back
  std::vector<std::vector<std::byte>> k_blocks, v_blocks;
  std::vector<const std::byte*> k_pointers, v_pointers;
};

/// softmax(scale q K) V in long double; [value_dim].
std::vector<long double> attend_by_definition(const testing::WholeQuery& args, int head_dim,
                                              int value_dim, const Cache& cache) {
  std::vector<long double> weights;
  long double sum = 0;
  for (int64_t p = 0; p < args.positions; ++p) {
    long double score = 0;
    for (int d = 0; d < head_dim; ++d) {
      score += static_cast<long double>(args.q[d]) * cache.k[static_cast<size_t>(p * head_dim + d)];
    }
    weights.push_back(std::exp(score * static_cast<long double>(args.scale)));
    sum += weights.back();
  }
  std::vector<long double> out(static_cast<size_t>(value_dim));
  for (int64_t p = 0; p < args.positions; ++p) {
    for (size_t d = 0; d < out.size(); ++d) {
      out[d] +=
          weights[static_cast<size_t>(p)] / sum * cache.v[static_cast<size_t>(p) * out.size() + d];
    }
  }
  return out;
}

TEST(ReferenceOps, Attend) {
  struct Shape {
    int64_t positions;
    int head_dim, value_dim;
    float scale;
  };
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    for (const auto& [positions, head_dim, value_dim, scale] :
         {Shape{1, 64, 64, 0.3f}, Shape{63, 80, 40, 0.3f}, Shape{64, 16, 16, 0.3f},
          Shape{65, 128, 128, 0.1f}, Shape{200, 96, 560, 0.3f}, Shape{130, 64, 32, 100.0f},
          Shape{1300, 64, 32, 0.3f}}) {
      SCOPED_TRACE(positions);
      const Cache cache(type, positions, head_dim, value_dim);
      const auto q = random_floats(head_dim, 16);
      std::vector<float> out(static_cast<size_t>(value_dim));
      const testing::WholeQuery query{.q = q.data(),
                                      .scale = scale,
                                      .first = 0,
                                      .positions = positions,
                                      .sink = nullptr,
                                      .out = out.data()};
      testing::attend_whole(reference_ops(),
                            {cache.k_pointers, cache.v_pointers, head_dim, value_dim, type},
                            {&query, 1});
      const auto exact = attend_by_definition(query, head_dim, value_dim, cache);
      // Between segments and before the division sums are rounded to float: of one segment its
      // values and their total; of more, each of them, where they may cancel each other out.
      const auto segments = static_cast<double>((positions - 1) / kSegmentPositions);
      for (size_t d = 0; d < out.size(); ++d) {
        const auto value = static_cast<double>(exact[d]);
        ASSERT_NEAR(out[d], value, (3.1 * std::abs(value) + 3 * segments) * 0x1p-24) << d;
      }
    }
  }
}

TEST(ReferenceOps, StoreRoundsAndClampsHalves) {
  std::vector<uint16_t> k(static_cast<size_t>(2 * kKvBlockPositions), 0x1234);
  std::vector<uint16_t> v(static_cast<size_t>(2 * kKvBlockPositions), 0x1234);
  const float values[2] = {1e9f, 1 + 0x1.8p-11f};
  reference_ops().store_k(KvType::kF16, values, 2, 5, reinterpret_cast<std::byte*>(k.data()));
  reference_ops().store_v(KvType::kF16, values, 2, 5, reinterpret_cast<std::byte*>(v.data()));
  for (size_t i = 0; i < k.size(); ++i) {
    const uint16_t k_expected = i == 5 ? 0x7bff : i == 5 + kKvBlockPositions ? 0x3c01 : 0x1234;
    const uint16_t v_expected = i == 10 ? 0x7bff : i == 11 ? 0x3c01 : 0x1234;
    ASSERT_EQ(k[i], k_expected) << i;
    ASSERT_EQ(v[i], v_expected) << i;
  }
}

}  // namespace
}  // namespace kernels
