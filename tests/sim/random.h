// Random numbers of the simulation: everything that is random comes from one seed.
//
// Each user has a stream of its own, so that one more draw here changes nothing there.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/rng.h"

namespace sim {

enum class Stream : uint32_t { kScenario, kNetwork, kProcesses, kFaults, kClients, kPlant };

class Random {
 public:
  Random(uint64_t seed, Stream stream) : seed_(seed), stream_(stream) {}

  uint64_t bits() {
    if (left_ == 0) {
      block_ = base::philox({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                             static_cast<uint32_t>(stream_), 0x51Au},
                            {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      counter_++;
      left_ = 2;
    }
    left_--;
    return (uint64_t{block_[2 * left_]} << 32) | block_[2 * left_ + 1];
  }
  /// In [0, bound).
  uint64_t below(uint64_t bound) {
    CHECK(bound > 0, "nothing is below 0");
    return bits() % bound;
  }
  /// In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(double probability) {
    return static_cast<double>(bits() >> 11) * 0x1p-53 < probability;
  }

 private:
  const uint64_t seed_;
  const Stream stream_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_ = {};
  size_t left_ = 0;  // words of block_
};

}  // namespace sim
