// Random numbers that depend on a key and a counter only, never on how often they were asked for.
//
// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). A draw for
// one token is keyed by (seed, prompt index, choice index, position), so batching, restarts and
// scheduling cannot change it.
#pragma once

#include <array>
#include <cstdint>

namespace base {

/// One Philox4x32-10 block: 128 random bits for a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// What a sampling draw depends on.
struct DrawKey {
  uint64_t seed = 0;
  uint32_t prompt_index = 0;
  uint32_t choice_index = 0;
  uint64_t position = 0;  // of the token being drawn
};

/// Uniform in [0, 1) with 53 bits.
double draw_uniform(const DrawKey& key);

}  // namespace base
