// The codebooks of the IQ types: which vectors of small magnitudes a code stands for.
//
// Facts of the GGUF format, as numbers: an entry packs the levels of the 8 (or 4) weights of a
// vector, the first weight in the lowest bits. What a level means is told per table. Constant data,
// any thread.
#pragma once

#include <cstdint>

namespace kernels {

/// 8 levels of 2 bits; level 0, 1, 2 is the magnitude 8, 25, 43.
extern const uint16_t kGridIq2Xxs[256];
extern const uint16_t kGridIq2Xs[512];
extern const uint16_t kGridIq2S[1024];
inline constexpr uint8_t kLevelsIq2[4] = {8, 25, 43, 0};

/// 4 levels of 3 bits. IQ3_XXS takes magnitudes from the table, IQ3_S has 2 * level + 1.
extern const uint16_t kGridIq3Xxs[256];
extern const uint16_t kGridIq3S[512];
inline constexpr uint8_t kLevelsIq3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};

/// 8 levels of 2 bits for IQ1_S and IQ1_M; the value is level - 1.
extern const uint16_t kGridIq1[2048];

}  // namespace kernels
