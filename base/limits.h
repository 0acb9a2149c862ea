// Upper bounds of everything that is sized at start or comes from outside, in one place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace base {

inline constexpr int kRanksMax = 64;            // ranks of one group
inline constexpr int kThreadsPerRankMax = 256;  // compute threads of one rank
inline constexpr int kStepColumnsMax = 512;     // token positions of one step
inline constexpr int kStepSequencesMax = 64;    // sequences of one step
inline constexpr int kExpertsUsedMax = 32;      // top-k of a router
inline constexpr int kExpertsMax = 1024;        // experts of one layer
inline constexpr int kLayersMax = 1024;
inline constexpr int64_t kContextMax = int64_t{1} << 20;  // positions of one sequence
inline constexpr int kKvBlockPositions = 64;  // positions of one KV block = one attention chunk
inline constexpr int kSegmentBlocks = 8;      // KV blocks that attention computes as a whole
inline constexpr int kSliceRows = 32;         // slice boundaries are multiples of this

/// The version of all arithmetic that decides tokens; any change of a bit bumps it.
inline constexpr uint32_t kNumericsVersion = 4;

}  // namespace base
