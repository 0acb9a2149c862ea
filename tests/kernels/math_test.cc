// The elementary functions against long-double libm, and bits that must never change.
#include "kernels/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace kernels {
namespace {

constexpr long double kPiLong = 3.14159265358979323846264338327950288L;

/// Distance from the exact value in units of the last place of the float next to it.
double ulps_f32(float got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / ulp);
}

double ulps_f64(double got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 53, -1074));
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) / ulp);
}

// Every 6101st float of both signs that is not clamped.
TEST(ExpF32, AtMostTwoUlpEverywhere) {
  double worst = 0;
  float worst_at = 0;
  int64_t count = 0;
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(104.5f); bits += 6101) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = std::bit_cast<float>(bits | sign);
      const long double exact = std::exp(static_cast<long double>(x));
      if (exact > static_cast<long double>(std::numeric_limits<float>::max())) continue;
      const double ulps = ulps_f32(exp_f32(x), exact);
      ++count;
      if (ulps > worst) {
        worst = ulps;
        worst_at = x;
      }
    }
  }
  EXPECT_GT(count, 300000);
  EXPECT_LE(worst, 2.0) << "at " << worst_at;
  RecordProperty("worst_ulps_times_1000", static_cast<int>(worst * 1000));
}

TEST(ExpF32, SubnormalResults) {
  double worst = 0;
  for (float x = -103.97f; x < -87.0f; x += 0.00037f) {
    worst = std::max(worst, ulps_f32(exp_f32(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(exp_f32(-102.0f), std::bit_cast<float>(4u));  // 3.59 times the smallest float
}

TEST(ExpF32, Edges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::denorm_min()), 1.0f);
  EXPECT_EQ(exp_f32(-103.98f), 0.0f);
  EXPECT_FALSE(std::signbit(exp_f32(-1e30f)));
  EXPECT_EQ(exp_f32(-kInfinity), 0.0f);
  EXPECT_LT(exp_f32(88.722f), kInfinity);
  EXPECT_EQ(exp_f32(88.73f), kInfinity);
  EXPECT_EQ(exp_f32(1e30f), kInfinity);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(SigmoidF32, CloseToTheExactValue) {
  for (float x = -80; x < 80; x += 0.00317f) {
    const long double exact = 1 / (1 + std::exp(-static_cast<long double>(x)));
    ASSERT_LE(ulps_f32(sigmoid_f32(x), exact), 3.0) << x;
  }
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(-1000.0f), 0.0f);
  EXPECT_EQ(sigmoid_f32(1000.0f), 1.0f);
  EXPECT_TRUE(std::isnan(sigmoid_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(LogF64, RelativeToMagnitudePlusOne) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    // All positive finite doubles, subnormal ones included; then those next to 1.
    const uint64_t bits = random() % 0x7ff0000000000000u;
    const double x = i % 2 == 0 ? std::bit_cast<double>(bits)
                                : 1 + std::ldexp(static_cast<double>(bits >> 11), -53 - i % 40);
    if (x == 0) continue;
    const long double exact = std::log(static_cast<long double>(x));
    const long double error = std::abs(static_cast<long double>(log_f64(x)) - exact);
    worst = std::max(worst, static_cast<double>(error / (std::abs(exact) + 1)));
  }
  EXPECT_LE(worst, 4e-16);
  EXPECT_GT(worst, 0);
}

TEST(LogF64, Edges) {
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_EQ(log_f64(2.0), std::log(2.0));
  EXPECT_EQ(log_f64(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_f64(std::numeric_limits<double>::infinity()),
            std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(log_f64(-1.0)));
  EXPECT_TRUE(std::isnan(log_f64(std::numeric_limits<double>::quiet_NaN())));
}

TEST(ExpF64, AtMostTwoUlp) {
  double worst = 0;
  for (double x = -699.9; x < 699.9; x += 0.00371) {
    worst = std::max(worst, ulps_f64(exp_f64(x), std::exp(static_cast<long double>(x))));
  }
  for (double x = 1e-18; x < 1; x *= 1.01) {
    worst = std::max(worst, ulps_f64(exp_f64(x), std::exp(static_cast<long double>(x))));
    worst = std::max(worst, ulps_f64(exp_f64(-x), std::exp(static_cast<long double>(-x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(-1e9), 0.0);
  EXPECT_EQ(exp_f64(1e9), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(exp_f64(std::numeric_limits<double>::quiet_NaN())));
}

TEST(SinCosF64, AbsoluteErrorAt1e13) {
  std::mt19937_64 random(2);
  double worst = 0;
  const auto check = [&](double x) {
    const SinCos got = sincos_f64(x);
    const auto exact = static_cast<long double>(x);
    worst = std::max({worst, static_cast<double>(std::abs(got.sin - std::sin(exact))),
                      static_cast<double>(std::abs(got.cos - std::cos(exact)))});
  };
  for (int i = 0; i < 300000; ++i) {
    const double unit = std::ldexp(static_cast<double>(random() >> 11), -53);
    check((2 * unit - 1) * 0x1p21);
    check(std::ldexp(2 * unit - 1, i % 30 - 8));
    // Next to multiples of pi / 2, where the reduction cancels most.
    const auto multiple = static_cast<double>(static_cast<int64_t>(unit * 1335088));
    check(static_cast<double>(static_cast<long double>(multiple) * kPiLong / 2));
    check(static_cast<double>(static_cast<long double>(multiple) * kPiLong / 4));
  }
  EXPECT_LE(worst, 1e-13);
  RecordProperty("worst_times_1e18", static_cast<int>(worst * 1e18));
}

TEST(SinCosF64, Edges) {
  EXPECT_EQ(sincos_f64(0).sin, 0);
  EXPECT_EQ(sincos_f64(0).cos, 1);
  EXPECT_EQ(sincos_f64(1e-300).sin, 1e-300);
  EXPECT_TRUE(std::isnan(sincos_f64(std::numeric_limits<double>::infinity()).cos));
}

// The same bits on every CPU, compiler and build type: values fixed here, once checked by the tests
// above. A change of one of them is a change of kNumericsVersion.
TEST(Math, BitsAreFixed) {
  uint64_t hash = 14695981039346656037u;
  const auto mix = [&](auto value) {
    unsigned char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
  };
  for (int i = -3000; i < 3000; ++i) {
    const double x = i * 0.034567;
    mix(exp_f32(static_cast<float>(x)));
    mix(sigmoid_f32(static_cast<float>(x)));
    mix(exp_f64(x));
    mix(log_f64(x * x + 1e-9));
    mix(sincos_f64(x * 1000).sin);
    mix(sincos_f64(x * 1000).cos);
  }
  EXPECT_EQ(hash, 10009688827516611290u);
}

struct RopeCase {
  const char* name;
  RopeSpec spec;
};

std::vector<RopeCase> rope_cases() {
  std::vector<float> factors(32);
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1 + static_cast<float>(i) * 0.25f;
  return {
      {"plain", {.dims = 128, .base = 1e6}},
      {"small base", {.dims = 16, .base = 500}},
      {"linear", {.dims = 64, .scaling = RopeScaling::kLinear, .factor = 4}},
      {"factors", {.dims = 64, .base = 5e5, .factors = factors}},
      {"yarn", {.dims = 64, .scaling = RopeScaling::kYarn, .factor = 40, .original_context = 4096}},
      {"yarn, other ramp",
       {.dims = 128,
        .base = 1e6,
        .scaling = RopeScaling::kYarn,
        .factor = 4,
        .original_context = 32768,
        .ext_factor = 0.7,
        .attention_factor = 0.8,
        .beta_fast = 16,
        .beta_slow = 2}},
      {"yarn, one pair of ramp",
       {.dims = 8,
        .base = 150000,
        .scaling = RopeScaling::kYarn,
        .factor = 32,
        .original_context = 64}},
      {"yarn with factors",
       {.dims = 64,
        .scaling = RopeScaling::kYarn,
        .factor = 2,
        .original_context = 2048,
        .factors = factors}},
      {"long",
       {.dims = 64,
        .scaling = RopeScaling::kLong,
        .original_context = 4096,
        .attention_factor = 1.19,
        .factors = factors}},
  };
}

/// Radians per position of pair i, from the formulas, in long double.
long double frequency_by_definition(const RopeSpec& spec, int i) {
  const long double n = spec.dims;
  const auto base = static_cast<long double>(spec.base);
  const auto factor = static_cast<long double>(spec.factor);
  long double extrapolated = std::pow(base, -2 * static_cast<long double>(i) / n);
  if (!spec.factors.empty()) extrapolated /= spec.factors[static_cast<size_t>(i)];
  if (spec.scaling == RopeScaling::kNone || spec.scaling == RopeScaling::kLong) return extrapolated;
  const long double interpolated = extrapolated / factor;
  if (spec.scaling == RopeScaling::kLinear) return interpolated;
  const auto turns_at = [&](double turns) {
    return n * std::log(static_cast<long double>(spec.original_context) / (turns * 2 * kPiLong)) /
           (2 * std::log(base));
  };
  const long double low = std::max(0.0L, std::floor(turns_at(spec.beta_fast)));
  const long double high = std::min(n - 1, std::ceil(turns_at(spec.beta_slow)));
  const long double ramp = std::clamp((i - low) / std::max(0.001L, high - low), 0.0L, 1.0L);
  const long double mix = (1 - ramp) * static_cast<long double>(spec.ext_factor);
  return interpolated * (1 - mix) + extrapolated * mix;
}

TEST(RopeTable, MatchesTheFormulas) {
  for (const RopeCase& rope : rope_cases()) {
    SCOPED_TRACE(rope.name);
    const RopeTable table(rope.spec);
    ASSERT_EQ(table.dims(), rope.spec.dims);
    const auto pairs = static_cast<size_t>(rope.spec.dims / 2);
    std::vector<float> cos(pairs), sin(pairs);
    long double magnitude = 1;
    if (rope.spec.scaling == RopeScaling::kYarn) {
      magnitude = rope.spec.attention_factor *
                  (1 + 0.1L * std::log(static_cast<long double>(rope.spec.factor)));
    }
    if (rope.spec.scaling == RopeScaling::kLong) magnitude = rope.spec.attention_factor;
    for (const int64_t position : {0, 1, 2, 17, 4095, 4096, 131071, 1048575, 1048576}) {
      table.angles(position, cos.data(), sin.data());
      for (size_t i = 0; i < pairs; ++i) {
        const long double angle = static_cast<long double>(position) *
                                  frequency_by_definition(rope.spec, static_cast<int>(i));
        ASSERT_NEAR(cos[i], static_cast<double>(magnitude * std::cos(angle)), 1e-7) << position;
        ASSERT_NEAR(sin[i], static_cast<double>(magnitude * std::sin(angle)), 1e-7) << position;
      }
    }
  }
}

// The test above would notice a ramp of one pair more: the frequencies differ where it matters.
TEST(RopeTable, YarnChangesTheSlowPairsOnly) {
  const RopeTable plain(RopeSpec{.dims = 64});
  const RopeTable yarn(RopeSpec{.dims = 64,
                                .scaling = RopeScaling::kYarn,
                                .factor = 40,
                                .original_context = 4096,
                                .attention_factor = 1 / (1 + 0.1 * log_f64(40))});
  std::vector<float> cos_plain(32), sin_plain(32), cos_yarn(32), sin_yarn(32);
  plain.angles(1000, cos_plain.data(), sin_plain.data());
  yarn.angles(1000, cos_yarn.data(), sin_yarn.data());
  // 32 turns in 4096 positions: pair 10.5 of 32; one turn: 22.5.
  for (size_t i = 0; i <= 10; ++i) EXPECT_NEAR(cos_plain[i], cos_yarn[i], 2e-7) << i;
  EXPECT_GT(std::abs(sin_plain[12] - sin_yarn[12]), 1e-3);
  plain.angles(1, cos_plain.data(), sin_plain.data());
  yarn.angles(40, cos_yarn.data(), sin_yarn.data());
  for (size_t i = 23; i < 32; ++i) EXPECT_NEAR(sin_plain[i], sin_yarn[i], 1e-9) << i;
}

}  // namespace
}  // namespace kernels
