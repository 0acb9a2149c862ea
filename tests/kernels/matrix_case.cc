#include "tests/kernels/matrix_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cat.h"
#include "kernels/activations.h"
#include "kernels/half.h"

namespace kernels::testing {

namespace {

constexpr double kEpsilon = 0x1p-24;  // half an ulp of float, relative

using Random = std::mt19937_64;

float uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

void put_f16(std::byte* to, float value) {
  const uint16_t half = f32_to_f16_clamped(value);
  std::memcpy(to, &half, sizeof half);
}

/// A scale for a block, or one of the ends of float16.
float random_scale(Random& random, Codes codes) {
  if (codes == Codes::kSane) return uniform(random, 0.0005f, 0.002f);
  const float choices[] = {0, 0x1p-24f, -0x1p-24f, 0x1.ffp-15f, 65504, -65504, 1, 0.001f};
  return choices[random() % 8];
}

/// Where the float16 numbers of a block are; -1 for none.
struct Halves {
  int d = 0, second = -1;
};
Halves halves_of(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: return {0, 2};
    case TensorType::kQ2_K: return {80, 82};
    case TensorType::kQ3_K: return {108, -1};
    case TensorType::kQ6_K: return {208, -1};
    default: return {};
  }
}

void fill_float_row(Random& random, const CaseSpec& spec, std::byte* row) {
  for (int64_t i = 0; i < spec.k; ++i) {
    float value = std::normal_distribution<float>(0, 0.05f)(random);
    if (spec.codes == Codes::kExtreme) {
      const float choices[] = {value, 0, -0.0f, 1e-40f, 3e4f, -65504, 0x1p-24f, 0x1.ffp-15f};
      value = choices[random() % 8];
    }
    if (spec.type == TensorType::kF32) {
      std::memcpy(row + i * 4, &value, 4);
    } else if (spec.type == TensorType::kF16) {
      put_f16(row + i * 2, value);
    } else {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      std::memcpy(row + i * 2, reinterpret_cast<const std::byte*>(&bits) + 2, 2);
    }
  }
}

void fill_quantised_row(Random& random, const CaseSpec& spec, std::byte* row) {
  const TypeInfo& info = type_info(spec.type);
  for (int64_t i = 0; i < spec.k / info.block_weights; ++i, row += info.block_bytes) {
    // Extreme blocks have all their bits set, or none, or 0x80 everywhere (code -128 of Q8_0), or
    // 0x7f.
    const unsigned patterns[] = {0xff, 0x00, 0x80, 0x7f};
    const unsigned pattern = patterns[random() % 4];
    const bool constant = spec.codes == Codes::kExtreme && random() % 2 == 0;
    for (int b = 0; b < info.block_bytes; ++b) {
      row[b] = static_cast<std::byte>(constant ? pattern : static_cast<unsigned>(random() % 256));
    }
    if (spec.type == TensorType::kMXFP4) {
      // Exponents of ordinary weights; else of subnormal and large ones, too.
      const unsigned exponents[] = {0, 1, 2, 3, 100, 127, 153, 200};
      row[0] = static_cast<std::byte>(spec.codes == Codes::kExtreme ? exponents[random() % 8]
                                                                    : 115 + random() % 4);
      continue;
    }
    const Halves halves = halves_of(spec.type);
    put_f16(row + halves.d, random_scale(random, spec.codes));
    if (halves.second >= 0) put_f16(row + halves.second, random_scale(random, spec.codes));
  }
}

float random_value(Random& random, Values values, int64_t i) {
  const float normal = std::normal_distribution<float>()(random);
  switch (values) {
    case Values::kNormal: return normal;
    case Values::kHeavy: return random() % 100 < 2 ? 80 * normal : normal;
    case Values::kExtreme: break;
  }
  // One kind of value per run of 32, so that whole sub-blocks are tiny, huge or zero.
  switch ((i / 32 + i / 256) % 6) {
    case 0: return normal;
    case 1: return 0;
    case 2: return 1e-40f * normal;
    case 3: return -3.5f;
    case 4: return random() % 2 == 0 ? 1e6f : -1e6f;
    default: return 1e-6f * normal;
  }
}

/// Largest |component| of a weight of a row: weights with a minimum are sums of two terms, each of
/// which is rounded.
double component_bound(const MatrixCase& matrix, const std::byte* row, int64_t i) {
  const struct {
    TensorType type;
    double d_max, second_max;  // what they are multiplied with
  } sums[] = {{TensorType::kQ4_1, 15, 1},
              {TensorType::kQ5_1, 31, 1},
              {TensorType::kQ2_K, 15 * 3, 15},
              {TensorType::kQ4_K, 63 * 15, 63},
              {TensorType::kQ5_K, 63 * 31, 63}};
  const TypeInfo& info = type_info(matrix.spec.type);
  for (const auto& sum : sums) {
    if (sum.type != info.type) continue;
    const std::byte* block = row + i / info.block_weights * info.block_bytes;
    const Halves halves = halves_of(info.type);
    uint16_t d, second;
    std::memcpy(&d, block + halves.d, sizeof d);
    std::memcpy(&second, block + halves.second, sizeof second);
    return sum.d_max * std::fabs(f16_to_f32(d)) + sum.second_max * std::fabs(f16_to_f32(second));
  }
  return 0;
}

Layout layout_of(const MatrixCase& matrix, const Ops& ops) {
  return layout_for(matrix.spec.type, ops);
}

std::vector<double> seen_activations(const MatrixCase& matrix, const Ops& ops, int c) {
  const std::vector<float>& x = matrix.x[static_cast<size_t>(c)];
  if (activation_format(layout_of(matrix, ops)) == ActivationFormat::kF32) {
    return {x.begin(), x.end()};
  }
  const ActivationFormat format = activation_format(layout_of(matrix, ops));
  return unpack_activations(format, pack_column(matrix, ops, c).data(), matrix.spec.k);
}

}  // namespace

std::string describe(const CaseSpec& spec) {
  return base::cat(type_info(spec.type).name, " k ", spec.k, " rows ", spec.rows, " columns ",
                   spec.columns, spec.codes == Codes::kExtreme ? " extreme codes" : "",
                   spec.values == Values::kExtreme ? " extreme values" : "", " seed ", spec.seed);
}

MatrixCase::MatrixCase(const CaseSpec& wanted) : spec(wanted) {
  Random random(spec.seed * 1000003u + static_cast<uint32_t>(spec.k) * 31u +
                static_cast<uint32_t>(spec.type));
  const size_t stride = static_cast<size_t>(row_bytes(spec.type, spec.k));
  rows.resize(static_cast<size_t>(spec.rows) * stride);
  for (int64_t r = 0; r < spec.rows; ++r) {
    std::byte* row = rows.data() + static_cast<size_t>(r) * stride;
    if (type_info(spec.type).block_weights == 1) {
      fill_float_row(random, spec, row);
    } else {
      fill_quantised_row(random, spec, row);
    }
  }
  for (int c = 0; c < spec.columns; ++c) {
    // Extreme cases have one column of 1e30, one of equal values, one of zeros.
    const float constants[] = {1e30f, -5, 0};
    std::vector<float> column(static_cast<size_t>(spec.k));
    for (int64_t i = 0; i < spec.k; ++i) {
      const bool constant = spec.values == Values::kExtreme && c >= 1 && c <= 3;
      column[static_cast<size_t>(i)] =
          constant ? constants[c - 1] : random_value(random, spec.values, i);
    }
    x.push_back(std::move(column));
  }
}

GuardedBuffer<std::byte> pack_rows(const MatrixCase& matrix, const Ops& ops, int64_t first_row,
                                   int64_t row_count) {
  const CaseSpec& spec = matrix.spec;
  const Layout layout = layout_of(matrix, ops);
  const size_t stride = panel_bytes(layout, spec.type, spec.k);
  const int64_t panels = (row_count + kPanelRows - 1) / kPanelRows;
  GuardedBuffer<std::byte> packed(stride * static_cast<size_t>(panels));
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t first = first_row + p * kPanelRows;
    const int64_t count = std::min<int64_t>(kPanelRows, row_count - p * kPanelRows);
    pack_panel(layout, spec.type, matrix.rows.data() + first * row_bytes(spec.type, spec.k),
               static_cast<int>(count), spec.k, packed.data() + static_cast<size_t>(p) * stride);
  }
  return packed;
}

GuardedBuffer<std::byte> pack_column(const MatrixCase& matrix, const Ops& ops, int c) {
  const ActivationFormat format = activation_format(layout_of(matrix, ops));
  const std::vector<float>& x = matrix.x[static_cast<size_t>(c)];
  if (format == ActivationFormat::kF32) {  // just the elements: kernels may not rely on more
    GuardedBuffer<std::byte> packed(x.size() * sizeof(float));
    std::memcpy(packed.data(), x.data(), packed.size());
    return packed;
  }
  GuardedBuffer<float> guarded(x.size());
  std::copy(x.begin(), x.end(), guarded.data());
  const auto k = static_cast<size_t>(matrix.spec.k);
  if (format == ActivationFormat::kQ8_32) {
    GuardedBuffer<std::byte> packed(k / kSubBlockWeights * sizeof(ActivationBlock32));
    ops.quantise_32(guarded.data(), matrix.spec.k, packed.data());
    return packed;
  }
  GuardedBuffer<std::byte> packed((k + kBlockWeights - 1) / kBlockWeights *
                                  sizeof(ActivationBlock));
  ops.quantise(guarded.data(), matrix.spec.k, packed.data());
  return packed;
}

std::vector<float> run(const MatrixCase& matrix, const Ops& ops, const Part& part) {
  const GuardedBuffer<std::byte> panels = pack_rows(matrix, ops, part.first_row, part.row_count);
  std::vector<GuardedBuffer<std::byte>> columns;
  std::vector<GuardedBuffer<float>> outputs;
  std::vector<const std::byte*> x;
  std::vector<float*> y;
  for (int c = 0; c < part.columns; ++c) {
    columns.push_back(pack_column(matrix, ops, part.first_column + c));
    outputs.emplace_back(static_cast<size_t>(part.row_count));
    x.push_back(columns.back().data());
    y.push_back(outputs.back().data());
  }
  const Layout layout = layout_of(matrix, ops);
  ops.matmul[static_cast<size_t>(layout)]({.panels = panels.data(),
                                           .row_count = part.row_count,
                                           .k = matrix.spec.k,
                                           .type = matrix.spec.type,
                                           .x = x.data(),
                                           .y = y.data(),
                                           .columns = part.columns});
  std::vector<float> result;
  for (const auto& output : outputs) {
    result.insert(result.end(), output.data(), output.data() + output.size());
  }
  return result;
}

std::string compare_with_double(const MatrixCase& matrix, const Ops& ops, const Part& part,
                                const std::vector<float>& y) {
  const int64_t k = matrix.spec.k;
  const size_t stride = static_cast<size_t>(row_bytes(matrix.spec.type, k));
  // Roundings of one output relative to the sum of |terms|. Floats: a chain over half of k. Blocks:
  // at most 8 + 3 inside a block, then a chain over blocks; the weights' own rounding.
  const ActivationFormat format = activation_format(layout_of(matrix, ops));
  const double length = static_cast<double>(k);
  const double roundings = format == ActivationFormat::kQ8      ? 14 + length / kBlockWeights
                           : format == ActivationFormat::kQ8_32 ? 4 + length / kSubBlockWeights
                                                                : length / 2 + 2;
  std::vector<float> w(static_cast<size_t>(k));
  std::vector<std::vector<double>> x;
  for (int c = 0; c < part.columns; ++c) {
    x.push_back(seen_activations(matrix, ops, part.first_column + c));
  }
  for (int64_t r = 0; r < part.row_count; ++r) {
    const std::byte* row = matrix.rows.data() + static_cast<size_t>(part.first_row + r) * stride;
    dequantise_row(matrix.spec.type, row, k, w.data());
    for (size_t c = 0; c < x.size(); ++c) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double wi = w[static_cast<size_t>(i)], xi = x[c][static_cast<size_t>(i)];
        sum += wi * xi;
        magnitude += std::max(std::fabs(wi), component_bound(matrix, row, i)) * std::fabs(xi);
      }
      const float got = y[c * static_cast<size_t>(part.row_count) + static_cast<size_t>(r)];
      // Sums below the normal range of float lose up to one subnormal step per rounding.
      const double bound = roundings * (kEpsilon * magnitude + 0x1p-149);
      // Where partial sums leave the range of float, infinity and NaN are the right answers.
      const bool overflow = magnitude > 3.4e38 && !std::isfinite(got);
      if (!overflow && !(std::fabs(got - sum) <= bound)) {
        return base::cat(describe(matrix.spec), ", table ", std::string_view(ops.name), ": row ",
                         part.first_row + r, " column ", part.first_column + static_cast<int>(c),
                         " is ", got, " instead of ", sum, ", allowed ", bound);
      }
    }
  }
  return {};
}

std::string check_product(const MatrixCase& matrix, const Ops& ops, const Ops& expected) {
  const Part part = whole(matrix.spec);
  const std::vector<float> y = run(matrix, ops, part);
  if (!same_bytes(y, run(matrix, expected, part))) {
    return base::cat(describe(matrix.spec), ": ", std::string_view(ops.name), " differs from ",
                     std::string_view(expected.name));
  }
  return compare_with_double(matrix, ops, part, y);
}

std::vector<double> unpack_activations(ActivationFormat format, const std::byte* packed,
                                       int64_t k) {
  std::vector<double> x;
  for (int64_t i = 0; i < k && format == ActivationFormat::kQ8_32; ++i) {
    ActivationBlock32 block;
    std::memcpy(&block, packed + static_cast<size_t>(i / kSubBlockWeights) * sizeof block,
                sizeof block);
    x.push_back(static_cast<double>(block.x[i % kSubBlockWeights]) *
                static_cast<double>(block.scale));
  }
  for (int64_t i = 0; i < k && format == ActivationFormat::kQ8; ++i) {
    ActivationBlock block;
    std::memcpy(&block, packed + static_cast<size_t>(i / kBlockWeights) * sizeof block,
                sizeof block);
    const size_t n = static_cast<size_t>(i % kBlockWeights);
    x.push_back(std::ldexp(static_cast<double>(block.x[n]), static_cast<int>(block.shift[n / 32])) *
                static_cast<double>(block.scale));
  }
  return x;
}

}  // namespace kernels::testing
