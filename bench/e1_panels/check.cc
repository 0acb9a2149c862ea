// Are all instruction sets, tiles and ways to lay out columns equal, and right?
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "bench/e1_panels/experiment.h"
#include "kernels/ops.h"

namespace e1 {

namespace {

constexpr int64_t kRows = 48;
constexpr int kColumns = 16;

struct Input {
  Input(Weights type, Random& random) : rows(random_rows(type, kRows, random)) {
    pack(type, rows, kRows, panels.data());
    weights.resize(static_cast<size_t>(kRows * kLength));
    const int64_t stride = kernels::row_bytes(tensor_type(type), kLength);
    for (int64_t r = 0; r < kRows; ++r) {
      kernels::dequantise_row(tensor_type(type), rows.data() + r * stride, kLength,
                              &weights[static_cast<size_t>(r * kLength)]);
    }
  }

  std::vector<std::byte> rows;
  Memory panels{size_t{8} << 20};
  std::vector<float> weights;  // [kRows][kLength]
};

/// All columns, one at a time if that is the kernel's tile.
std::vector<float> product(const Kernel& kernel, const Input& input,
                           const std::vector<std::vector<float>>& x) {
  std::vector<float> y(kColumns * kRows);
  if (kernel.tile_columns == 1) {
    for (size_t c = 0; c < kColumns; ++c) {
      run(kernel, input.panels.data(), kRows, Columns({x[c]}, kernel.kind, 1), 1, &y[c * kRows]);
    }
  } else {
    run(kernel, input.panels.data(), kRows, Columns(x, kernel.kind, 4), kColumns, y.data());
  }
  return y;
}

/// Largest error against double arithmetic on the file's blocks, relative to the sum of |terms|.
double worst_error(const Input& input, const std::vector<std::vector<float>>& x, Kind kind,
                   const std::vector<float>& y) {
  const Columns columns(x, kind, 4);
  double worst = 0;
  for (int c = 0; c < kColumns; ++c) {
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0, magnitude = 1e-30;
      for (int64_t i = 0; i < kLength; ++i) {
        const double w = input.weights[static_cast<size_t>(r * kLength + i)];
        const double term = w * value(columns.block(c, i / 256), static_cast<int>(i % 256));
        sum += term;
        magnitude += std::fabs(term);
      }
      const double got = y[static_cast<size_t>(c * kRows + r)];
      worst = std::max(worst, std::fabs(got - sum) / magnitude);
    }
  }
  return worst;
}

}  // namespace

int check() {
  Random random(1);
  auto x = heavy_columns(kColumns, random);
  for (size_t i = 0; i < kLength; ++i) {
    x[1][i] = 1e30f;
    x[2][i] = -5;
    x[3][i] = 0;
  }
  int bad = 0, compared = 0;
  for (const Weights weights : {Weights::kQ4_K, Weights::kQ8_0, Weights::kIQ3_S}) {
    const Input input(weights, random);
    std::map<std::string, std::vector<float>> expected;
    for (const Build& build : builds()) {
      for (const Kernel& kernel : build.kernels) {
        if (kernel.weights != weights) continue;
        std::vector<float> y = product(kernel, input, x);
        const auto [first, fresh] = expected.emplace(kernel.name, y);
        const auto differs = [&] {
          return std::memcmp(y.data(), first->second.data(), y.size() * sizeof(float)) != 0;
        };
        if (fresh) {
          const double error = worst_error(input, x, kernel.kind, y);
          std::printf("%-12s worst error / sum of |terms| %.1e\n", kernel.name, error);
          bad += !(error < 2e-6);
        } else if (differs()) {
          std::printf("DIFFERS: %s %s, tiles of %d\n", build.name, kernel.name,
                      kernel.tile_columns);
          ++bad;
        }
        y.back() = std::nextafter(y.back(), 1e9f);  // the comparison must see one flipped bit
        bad += !differs();
        ++compared;
      }
    }
  }
  std::printf("%d kernels compared by memcmp over %zu instruction sets: %d bad\n", compared,
              builds().size(), bad);
  return bad;
}

}  // namespace e1
