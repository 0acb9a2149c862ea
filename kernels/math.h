// Elementary functions in a fixed order of IEEE operations: the same bits on every CPU and libm.
//
// For router scores, rope tables and sampling. The vectorised forms inside kernels use the same
// polynomial for exp.
#pragma once

#include <cstdint>
#include <vector>

namespace kernels {

/// e^x; error at most 2 ulp; 0 below -103.97, inf above 88.73; NaN stays NaN.
float exp_f32(float x);
/// 1 / (1 + e^-x).
float sigmoid_f32(float x);
/// Natural logarithm of x > 0; error at most 1e-15 relative to the result's magnitude plus 1.
double log_f64(double x);
/// e^x for |x| < 700, error at most 2 ulp.
double exp_f64(double x);
struct SinCos {
  double sin, cos;
};
/// Largest angle whose sine and cosine are exact, in radians.
inline constexpr double kAngleMax = 2097152;  // 2^21
/// Sine and cosine of |x| <= kAngleMax, absolute error at most 1e-13.
SinCos sincos_f64(double x);

/// Scaling of rotary embeddings.
enum class RopeScaling : uint32_t { kNone, kLinear, kYarn, kLong };
struct RopeSpec {
  int dims = 0;  // rotated elements of a head, even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;             // context extension, >= 1
  int64_t original_context = 0;  // positions trained on, for YaRN
  double ext_factor = 1;         // YaRN: share of extrapolation
  double attention_factor = 1;   // YaRN, LongRoPE: multiplies cos and sin; YaRN's also with
  double magnitude_log = 0.1;    // 1 + magnitude_log * ln(factor)
  double beta_fast = 32;
  double beta_slow = 1;
  std::vector<float> factors = {};  // [dims / 2] divisors of the frequencies (rope_freqs), or empty
};

/// Angles per position, prepared once. YaRN: Peng et al., arXiv 2309.00071, with the ramp's ends
/// rounded outwards. LongRoPE (arXiv 2402.13753) is its factors.
class RopeTable {
 public:
  explicit RopeTable(const RopeSpec& spec);
  int dims() const { return dims_; }
  /// cos and sin [dims / 2] of `position`.
  void angles(int64_t position, float* cos, float* sin) const;

 private:
  int dims_;
  double magnitude_;
  std::vector<double> frequencies_;  // [dims / 2] radians per position
};

}  // namespace kernels
