// exp over the lanes of one register: the recipe of exp_constants.h in the vocabulary.
//
// Every lane has the bits of exp_f32() for all finite x and infinities; NaN stays NaN. Any thread.
#pragma once

#include "kernels/exp_constants.h"

namespace kernels {

/// e^x per lane. V: a vocabulary, see vocabulary.h.
template <class V>
inline typename V::F32 exp(typename V::F32 x) {
  // max and min return their second operand if one is NaN, so NaN arrives at the polynomial.
  x = V::min_f32(V::set_f32(kExpHigh), V::max_f32(V::set_f32(kExpLow), x));
  const auto t = V::fma(x, V::set_f32(kExpLog2e), V::set_f32(kExpShift));
  const auto n = V::sub_f32(t, V::set_f32(kExpShift));
  auto r = V::fma(n, V::set_f32(kExpMinusLn2High), x);
  r = V::fma(n, V::set_f32(kExpMinusLn2Low), r);
  auto p = V::set_f32(kExpPoly[0]);
  for (int i = 1; i < 7; ++i) p = V::fma(p, r, V::set_f32(kExpPoly[i]));
  const auto exponent = V::sub(V::bits(t), V::bits(V::set_f32(kExpShift)));
  const auto half = V::template sar<1>(exponent);
  const auto bias = V::set_i32(127);
  const auto low = V::from_bits(V::template shl<23>(V::add(half, bias)));
  const auto high = V::from_bits(V::template shl<23>(V::add(V::sub(exponent, half), bias)));
  return V::mul(V::mul(p, low), high);
}

}  // namespace kernels
