// The recipe of exp for float32, as constants: exp_f32 and every vector form do these operations in
// this order and so give the same bits.
//
//   x = min(max(x, kExpLow), kExpHigh)                     NaN passes through both
//   t = fma(x, kExpLog2e, kExpShift)                       round(x / ln 2) in the low bits of t
//   n = t - kExpShift
//   r = fma(n, kExpMinusLn2High, x); r = fma(n, kExpMinusLn2Low, r)
//   p = kExpPoly[0]; p = fma(p, r, kExpPoly[i]) for i = 1 … 6
//   i = bits(t) - bits(kExpShift) as int32;  a = i >> 1 (arithmetic);  b = i - a
//   result = (p * 2^a) * 2^b                               two steps, so subnormals round once
//
// The clamped ends come out as 0 and infinity by themselves.
#pragma once

namespace kernels {

inline constexpr float kExpLow = -104.0f;
inline constexpr float kExpHigh = 89.0f;
inline constexpr float kExpLog2e = 0x1.715476p+0f;
inline constexpr float kExpShift = 0x1.8p+23f;
/// -ln 2 in two parts; the first has 15 bits, so n times it is exact.
inline constexpr float kExpMinusLn2High = -0x1.62e4p-1f;
inline constexpr float kExpMinusLn2Low = -0x1.7f7d1cp-20f;
/// e^r for |r| <= ln(2) / 2, highest power first: fitted to the smallest relative error (2^-28),
/// with 1 + r fixed.
inline constexpr float kExpPoly[7] = {
    0x1.6a23cep-10f, 0x1.123a2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f, 1.0f, 1.0f};

}  // namespace kernels
