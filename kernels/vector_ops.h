// Everything but products of matrices and attention, once for all instruction sets. What each
// function means: ops.h; in which order it adds: lanes16.h. Element-wise work needs no order.
#pragma once

#include <cmath>

#include "kernels/lanes16.h"

namespace kernels {

template <class V>
struct VectorOps {
  using L = Lanes16<V>;

  static void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
    L squares = L::set(0);
    for (int64_t i = 0; i < n; i += 16) {
      const L a = L::load(x + i, n - i, 0);
      squares = fma(a, a, squares);
    }
    const float mean = squares.sum() / static_cast<float>(n);
    const L scale = L::set(1.0f / __builtin_sqrtf(mean + epsilon));
    for (int64_t i = 0; i < n; i += 16) {
      const L a = L::load(x + i, n - i, 0), w = L::load(weight + i, n - i, 0);
      (a * scale * w).store(out + i, n - i);
    }
  }

  static void silu_multiply(const float* gate, const float* up, int64_t n, float* out) {
    const L zero = L::set(0), one = L::set(1);
    for (int64_t i = 0; i < n; i += 16) {
      const L g = L::load(gate + i, n - i, 0), u = L::load(up + i, n - i, 0);
      (g / (one + exp(zero - g)) * u).store(out + i, n - i);
    }
  }

  static void clamped_swiglu(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out) {
    const L zero = L::set(0), one = L::set(1), alpha = L::set(clamp.alpha);
    const L highest = L::set(clamp.limit), lowest = L::set(-clamp.limit);
    for (int64_t i = 0; i < n; i += 16) {
      // The bounds come first: a NaN is then the one that is taken.
      const L g = min(highest, L::load(gate + i, n - i, 0));
      const L u = max(lowest, min(highest, L::load(up + i, n - i, 0)));
      (g / (one + exp(zero - alpha * g)) * (u + one)).store(out + i, n - i);
    }
  }

  static void add(const float* a, const float* b, int64_t n, float* out) {
    for (int64_t i = 0; i < n; i += 16) {
      (L::load(a + i, n - i, 0) + L::load(b + i, n - i, 0)).store(out + i, n - i);
    }
  }

  static void multiply_add(float a, const float* x, int64_t n, float* y) {
    const L factor = L::set(a);
    for (int64_t i = 0; i < n; i += 16) {
      fma(factor, L::load(x + i, n - i, 0), L::load(y + i, n - i, 0)).store(y + i, n - i);
    }
  }

  static void softmax(float* x, int64_t n) {
    const float lowest = -__builtin_inff();
    L top = L::set(lowest);
    for (int64_t i = 0; i < n; i += 16) top = max(top, L::load(x + i, n - i, lowest));
    const L highest = L::set(top.max());
    L sums = L::set(0);
    for (int64_t i = 0; i < n; i += 16) {
      // Lanes behind the end hold exp(-infinity) = 0 and add nothing.
      const L e = exp(L::load(x + i, n - i, lowest) - highest);
      e.store(x + i, n - i);
      sums = sums + e;
    }
    const L total = L::set(sums.sum());
    for (int64_t i = 0; i < n; i += 16) (L::load(x + i, n - i, 0) / total).store(x + i, n - i);
  }

  static void exp_scaled(const float* x, int64_t n, const ExpScale& scale, float* out) {
    const L offset = L::set(scale.offset), divisor = L::set(scale.divisor);
    for (int64_t i = 0; i < n; i += 16) {
      exp((L::load(x + i, n - i, 0) - offset) / divisor).store(out + i, n - i);
    }
  }

  static void rope(RopePairs pairs, const float* cos, const float* sin, int dims, float* x) {
    const int half = dims / 2;
    if (pairs == RopePairs::kInterleaved) {
      for (int i = 0; i < half; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
        x[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
      }
      return;
    }
    for (int i = 0; i < half; i += 16) {
      const int n = half - i;
      const L c = L::load(cos + i, n, 0), s = L::load(sin + i, n, 0);
      const L a = L::load(x + i, n, 0), b = L::load(x + half + i, n, 0);
      fnma(b, s, a * c).store(x + i, n);
      fma(a, s, b * c).store(x + half + i, n);
    }
  }
};

}  // namespace kernels
