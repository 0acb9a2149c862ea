// Norms, activations, softmax, rope and friends: equal bits in every table, exp_f32's bits inside,
// accurate against double precision, and never a byte beyond the given sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "kernels/exp_polynomial.h"
#include "kernels/isa/scalar.h"
#include "kernels/math.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/tables.h"

namespace kernels::testing {
namespace {

constexpr int64_t kSizes[] = {1,  2,  7,  8,  9,  15,  16,  17,  31,
                              32, 33, 36, 40, 64, 100, 511, 512, 2048};
constexpr double kEpsilon = 0x1p-24;

GuardedBuffer<float> normals(int64_t n, uint32_t seed, float sigma = 1) {
  std::mt19937_64 random(seed * 977 + static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(0, sigma);
  GuardedBuffer<float> buffer(static_cast<size_t>(n));
  for (float& value : buffer.span()) value = normal(random);
  return buffer;
}

GuardedBuffer<float> copy(const GuardedBuffer<float>& from) {
  GuardedBuffer<float> buffer(from.size());
  std::copy_n(from.data(), from.size(), buffer.data());
  return buffer;
}

/// Runs `op(ops, inputs…)` for all sizes and tables, out of place and in place, and compares bits.
using Binary =
    std::function<void(const Ops&, const float* a, const float* b, int64_t n, float* out)>;
void expect_equal_in_all_tables(const Binary& op, float sigma = 1) {
  for (const int64_t n : kSizes) {
    const auto a = normals(n, 1, sigma), b = normals(n, 2, sigma);
    GuardedBuffer<float> expected(static_cast<size_t>(n));
    op(scalar(), a.data(), b.data(), n, expected.data());
    for (const Ops* ops : equal_tables()) {
      GuardedBuffer<float> out(static_cast<size_t>(n));
      op(*ops, a.data(), b.data(), n, out.data());
      EXPECT_TRUE(same_bytes(out, expected)) << ops->name << " n " << n;
      auto in_place = copy(a);
      op(*ops, in_place.data(), b.data(), n, in_place.data());
      EXPECT_TRUE(same_bytes(in_place, expected)) << ops->name << " in place, n " << n;
    }
  }
}

TEST(Exp, HasTheBitsOfExpF32) {
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const float got = kernels::exp<isa::Scalar>(x), expected = exp_f32(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << x;
    }
  }
}

TEST(SiluMultiply, IsEqualInAllTables) {
  for (const float sigma : {1.0f, 30.0f, 1000.0f}) {
    expect_equal_in_all_tables([](const Ops& ops, const float* a, const float* b, int64_t n,
                                  float* out) { ops.silu_multiply(a, b, n, out); },
                               sigma);
  }
}

TEST(SiluMultiply, HasTheBitsOfExpF32) {
  GuardedBuffer<float> gate(4096), up(4096), out(4096);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = -110.0f + static_cast<float>(i) * 0.0537f;
    up[i] = 1;
  }
  for (const Ops* ops : equal_tables()) {
    ops->silu_multiply(gate.data(), up.data(), 4096, out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const float expected = gate[i] / (1.0f + exp_f32(0.0f - gate[i]));
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected)) << gate[i];
    }
  }
}

TEST(SiluMultiply, IsAccurate) {
  const auto gate = normals(2048, 5, 8), up = normals(2048, 6);
  GuardedBuffer<float> out(2048);
  scalar().silu_multiply(gate.data(), up.data(), 2048, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const double g = gate[i], u = up[i];
    const double expected = g / (1 + std::exp(-g)) * u;
    EXPECT_NEAR(out[i], expected, std::fabs(expected) * 10 * kEpsilon) << g;
  }
}

constexpr SwigluClamp kClamp{1.702f, 7.0f};

TEST(ClampedSwiglu, IsEqualInAllTables) {
  for (const float sigma : {1.0f, 8.0f, 1000.0f}) {
    expect_equal_in_all_tables([](const Ops& ops, const float* a, const float* b, int64_t n,
                                  float* out) { ops.clamped_swiglu(a, b, n, kClamp, out); },
                               sigma);
  }
}

TEST(ClampedSwiglu, IsAccurateOnBothSidesOfItsBounds) {
  const auto gate = normals(2048, 5, 8), up = normals(2048, 6, 8);
  std::vector<const Ops*> tables = equal_tables();
  tables.push_back(&table("reference"));
  for (const Ops* ops : tables) {
    GuardedBuffer<float> out(2048);
    ops->clamped_swiglu(gate.data(), up.data(), 2048, kClamp, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const double g = std::min(double{gate[i]}, 7.0), u = std::clamp(double{up[i]}, -7.0, 7.0);
      const double expected = g / (1 + std::exp(-double{1.702f} * g)) * (u + 1);
      // The argument of exp is rounded, and near -1 so is the sum with up.
      const double roundings = 10 + 2 * std::fabs(g) + 2 * std::fabs(u) / std::fabs(u + 1);
      EXPECT_NEAR(out[i], expected, std::fabs(expected) * roundings * kEpsilon)
          << ops->name << ' ' << g << ' ' << u;
    }
  }
}

TEST(ClampedSwiglu, KeepsWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<const Ops*> tables = equal_tables();
  tables.push_back(&table("reference"));
  for (const Ops* ops : tables) {
    const float gate[] = {nan, 1, 1}, up[] = {1, nan, 1};
    float out[3];
    ops->clamped_swiglu(gate, up, 3, kClamp, out);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && !std::isnan(out[2])) << ops->name;
  }
}

TEST(RmsNorm, IsEqualInAllTables) {
  expect_equal_in_all_tables([](const Ops& ops, const float* a, const float* b, int64_t n,
                                float* out) { ops.rms_norm(a, b, n, 1e-6f, out); });
}

TEST(RmsNorm, IsAccurate) {
  for (const int64_t n : kSizes) {
    const auto x = normals(n, 3, 20), w = normals(n, 4);
    GuardedBuffer<float> out(x.size());
    scalar().rms_norm(x.data(), w.data(), n, 1e-5f, out.data());
    double squares = 0;
    for (size_t i = 0; i < x.size(); ++i) squares += double{x[i]} * double{x[i]};
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + double{1e-5f});
    const double roundings = static_cast<double>(n) / 32 + 12;
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = double{x[i]} * scale * double{w[i]};
      EXPECT_NEAR(out[i], expected, std::fabs(expected) * roundings * kEpsilon) << n << ' ' << i;
    }
  }
}

TEST(Add, IsEqualInAllTablesAndExact) {
  expect_equal_in_all_tables([](const Ops& ops, const float* a, const float* b, int64_t n,
                                float* out) { ops.add(a, b, n, out); });
  const float a[] = {1, 2, 3}, b[] = {10, 20, 0x1p-30f};
  float out[3];
  scalar().add(a, b, 3, out);
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 22);
  EXPECT_EQ(out[2], 3.0f + 0x1p-30f);
}

TEST(MultiplyAdd, IsEqualInAllTablesAndFused) {
  for (const int64_t n : kSizes) {
    const auto x = normals(n, 8), y = normals(n, 9);
    for (const Ops* ops : equal_tables()) {
      auto out = copy(y);
      ops->multiply_add(1.7f, x.data(), n, out.data());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], std::fma(1.7f, x[i], y[i]));
    }
  }
}

TEST(Softmax, IsEqualInAllTablesAndAccurate) {
  for (const float sigma : {1.0f, 40.0f}) {
    for (const int64_t n : kSizes) {
      const auto x = normals(n, 11, sigma);
      auto expected = copy(x);
      scalar().softmax(expected.data(), n);
      double top = -INFINITY, total = 0;
      for (size_t i = 0; i < x.size(); ++i) top = std::max(top, double{x[i]});
      for (size_t i = 0; i < x.size(); ++i) total += std::exp(double{x[i]} - top);
      for (size_t i = 0; i < x.size(); ++i) {
        const double p = std::exp(double{x[i]} - top) / total;
        // The difference is rounded before exp sees it, and n / 16 + 8 sums and quotients follow.
        const double relative =
            (std::fabs(double{x[i]} - top) + 8 + static_cast<double>(n) / 16) * kEpsilon;
        EXPECT_NEAR(expected[i], p, p * relative + 0x1p-149) << n;
      }
      for (const Ops* ops : equal_tables()) {
        auto out = copy(x);
        ops->softmax(out.data(), n);
        EXPECT_TRUE(same_bytes(out, expected)) << ops->name << " n " << n;
      }
    }
  }
}

TEST(Softmax, UsesTheBitsOfExpF32) {
  float x[16];
  for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(-i) * 1.37f;
  float sums[16], expected[16];
  for (int i = 0; i < 16; ++i) sums[i] = exp_f32(x[i]);
  for (int n = 8; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) sums[i] += sums[i + n];
  }
  for (int i = 0; i < 16; ++i) expected[i] = exp_f32(x[i]) / sums[0];
  for (const Ops* ops : equal_tables()) {
    float out[16];
    std::copy_n(x, 16, out);
    ops->softmax(out, 16);
    EXPECT_EQ(std::memcmp(out, expected, sizeof out), 0) << ops->name;
  }
}

TEST(Exp, OfShiftedAndDividedHasTheBitsOfExpF32) {
  for (const int64_t n : kSizes) {
    auto x = normals(n, 13, 30);
    x[0] = -INFINITY;
    for (const ExpScale scale : {ExpScale{}, ExpScale{.offset = 3.7f, .divisor = 0.7f}}) {
      for (const Ops* ops : equal_tables()) {
        GuardedBuffer<float> out(x.size());
        ops->exp(x.data(), n, scale, out.data());
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(out[i], exp_f32((x[i] - scale.offset) / scale.divisor)) << ops->name << i;
        }
      }
    }
  }
}

TEST(Rope, IsEqualInAllTablesAndTurnsEachPair) {
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves}) {
    for (const int dims : {2, 8, 18, 32, 36, 64, 72, 128}) {
      const int half = dims / 2;
      GuardedBuffer<float> cos(static_cast<size_t>(half)), sin(static_cast<size_t>(half));
      for (int i = 0; i < half; ++i) {
        cos[static_cast<size_t>(i)] = static_cast<float>(std::cos(0.3 * i + 0.1));
        sin[static_cast<size_t>(i)] = static_cast<float>(std::sin(0.3 * i + 0.1));
      }
      const auto x = normals(dims, 21);
      for (const Ops* ops : equal_tables()) {
        auto out = copy(x);
        ops->rope(pairs, cos.data(), sin.data(), dims, out.data());
        for (int i = 0; i < half; ++i) {
          const size_t a = static_cast<size_t>(pairs == RopePairs::kHalves ? i : 2 * i);
          const size_t b = static_cast<size_t>(pairs == RopePairs::kHalves ? i + half : 2 * i + 1);
          const float c = cos[static_cast<size_t>(i)], s = sin[static_cast<size_t>(i)];
          ASSERT_EQ(out[a], std::fma(-x[b], s, x[a] * c)) << ops->name << ' ' << dims;
          ASSERT_EQ(out[b], std::fma(x[a], s, x[b] * c)) << ops->name << ' ' << dims;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kernels::testing
