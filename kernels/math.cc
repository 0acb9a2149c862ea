// Every operation here is one IEEE operation (+, -, *, /, fma) or moves bits, in one order: that is
// why the results are the same on every CPU. Nothing calls a transcendental function of libm.
#include "kernels/math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/exp_constants.h"

namespace kernels {

namespace {

constexpr double kPi = 0x1.921fb54442d18p+1;
constexpr double kLn2High = 0x1.62e42feep-1;  // 33 bits: an exponent times it is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
/// Added to |x| < 2^51, rounds it to an integer that is then in the low bits.
constexpr double kRoundShift = 0x1.8p+52;

/// 2^n for a normal result.
float power_of_two_f32(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}
double power_of_two_f64(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

/// sum of terms[i] * x^i; `terms` lowest power first.
template <size_t count>
double polynomial(const double (&terms)[count], double x) {
  double sum = terms[count - 1];
  for (size_t i = count - 1; i-- > 0;) sum = std::fma(sum, x, terms[i]);
  return sum;
}

}  // namespace

float exp_f32(float x) {
  if (std::isnan(x)) return x;
  x = std::min(std::max(x, kExpLow), kExpHigh);
  const float t = std::fma(x, kExpLog2e, kExpShift);
  const float n = t - kExpShift;
  float r = std::fma(n, kExpMinusLn2High, x);
  r = std::fma(n, kExpMinusLn2Low, r);
  float p = kExpPoly[0];
  for (int i = 1; i < 7; ++i) p = std::fma(p, r, kExpPoly[i]);
  const int32_t exponent = std::bit_cast<int32_t>(t) - std::bit_cast<int32_t>(kExpShift);
  const int32_t half = exponent >> 1;
  return p * power_of_two_f32(half) * power_of_two_f32(exponent - half);
}

float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

double log_f64(double x) {
  if (std::isnan(x) || x == std::numeric_limits<double>::infinity()) return x;
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)).
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m = std::bit_cast<double>(bits);
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    exponent += 1;
  }
  // log m = 2 artanh(f) = 2 f + 2 f^3 (1/3 + f^2/5 + …) with f = (m - 1) / (m + 1), |f| < 0.1716.
  constexpr double kTerms[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                               2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
  const double f = (m - 1) / (m + 1);
  const double f2 = f * f;
  const double tail = f * f2 * polynomial(kTerms, f2);
  const double e = static_cast<double>(exponent);
  return std::fma(e, kLn2High, std::fma(e, kLn2Low, tail) + 2 * f);
}

double exp_f64(double x) {
  // Outside of what callers may ask for: the limits, and NaN for NaN.
  if (!(std::abs(x) < 700)) return x < 0 ? 0 : x * std::numeric_limits<double>::infinity();
  const double t = std::fma(x, 0x1.71547652b82fep+0, kRoundShift);
  const double n = t - kRoundShift;
  double r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  // Taylor's series; |r| <= ln(2) / 2, so what is left out is below 2^-57.
  constexpr double kTerms[] = {1.0,
                               1.0,
                               1.0 / 2,
                               1.0 / 6,
                               1.0 / 24,
                               1.0 / 120,
                               1.0 / 720,
                               1.0 / 5040,
                               1.0 / 40320,
                               1.0 / 362880,
                               1.0 / 3628800,
                               1.0 / 39916800,
                               1.0 / 479001600,
                               1.0 / 6227020800};
  return polynomial(kTerms, r) * power_of_two_f64(static_cast<int64_t>(n));
}

SinCos sincos_f64(double x) {
  // x = n * pi/2 + r. The first step is exact, because its result is a multiple of 2^-53 below 1;
  // the second adds what pi/2 has beyond double.
  const double t = std::fma(x, 0x1.45f306dc9c883p-1, kRoundShift);
  const double n = t - kRoundShift;
  double r = std::fma(n, -0x1.921fb54442d18p+0, x);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  constexpr double kSinTerms[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCosTerms[] = {1.0,
                                  -1.0 / 2,
                                  1.0 / 24,
                                  -1.0 / 720,
                                  1.0 / 40320,
                                  -1.0 / 3628800,
                                  1.0 / 479001600,
                                  -1.0 / 87178291200,
                                  1.0 / 20922789888000,
                                  -1.0 / 6402373705728000};
  const double r2 = r * r;
  const double sin = std::fma(r * r2, polynomial(kSinTerms, r2), r);
  const double cos = polynomial(kCosTerms, r2);
  switch (std::bit_cast<uint64_t>(t) & 3) {
    case 0: return {sin, cos};
    case 1: return {cos, -sin};
    case 2: return {-sin, -cos};
    default: return {-cos, sin};
  }
}

RopeTable::RopeTable(const RopeSpec& spec) : dims_(spec.dims), magnitude_(1) {
  CHECK(spec.dims >= 0 && spec.dims % 2 == 0, "rope turns pairs, not ", spec.dims, " elements");
  CHECK(spec.base > 0 && spec.factor > 0, "rope base ", spec.base, ", factor ", spec.factor);
  const size_t pairs = static_cast<size_t>(spec.dims) / 2;
  CHECK(spec.factors.empty() || spec.factors.size() == pairs, "rope has ", spec.factors.size(),
        " frequency factors for ", pairs, " pairs");
  const double n = spec.dims;
  const double log_base = log_f64(spec.base);

  // YaRN: pairs up to `low` turn often enough within the trained context to be left alone, pairs
  // from `high` on are slowed down by the whole factor.
  double low = 0;
  double high = 0;
  if (spec.scaling == RopeScaling::kYarn) {
    CHECK(spec.original_context > 0, "YaRN needs the context the model was trained on");
    magnitude_ = spec.attention_factor * (1 + spec.magnitude_log * log_f64(spec.factor));
    const auto pair_with_turns = [&](double turns) {
      const double context = static_cast<double>(spec.original_context);
      return n * log_f64(context / (turns * 2 * kPi)) / (2 * log_base);
    };
    low = std::max(0.0, std::floor(pair_with_turns(spec.beta_fast)));
    high = std::min(n - 1, std::ceil(pair_with_turns(spec.beta_slow)));
  }

  if (spec.scaling == RopeScaling::kLong) magnitude_ = spec.attention_factor;

  frequencies_.reserve(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const double index = static_cast<double>(i);
    double frequency = exp_f64(-2 * index / n * log_base);
    if (!spec.factors.empty()) frequency /= static_cast<double>(spec.factors[i]);
    if (spec.scaling == RopeScaling::kLinear) {
      frequency /= spec.factor;
    } else if (spec.scaling == RopeScaling::kYarn) {
      const double ramp = std::clamp((index - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double mix = (1 - ramp) * spec.ext_factor;
      frequency = frequency / spec.factor * (1 - mix) + frequency * mix;
    }
    frequencies_.push_back(frequency);
  }
}

void RopeTable::angles(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const SinCos angle = sincos_f64(static_cast<double>(position) * frequencies_[i]);
    cos[i] = static_cast<float>(angle.cos * magnitude_);
    sin[i] = static_cast<float>(angle.sin * magnitude_);
  }
}

}  // namespace kernels
