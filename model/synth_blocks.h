// Random weights straight as the bytes of any tensor type: codes are random bits, scales are sane.
//
// The values of a tensor have mean 0 and the deviation asked for; scales differ from block to block
// by up to a quarter. Bytes depend on the seed, the stream and their place only, so any thread may
// fill any part. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/formats.h"

namespace model {

/// Random 64-bit words by their number (the mixing function of SplitMix64: Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014).
class SynthBits {
 public:
  SynthBits(uint64_t seed, uint64_t stream) : key_(mix(seed ^ mix(stream + kStep))) {}
  uint64_t word(uint64_t index) const { return mix(key_ + index * kStep); }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t key_;
};

/// Random blocks of one type with one deviation.
class SynthBlocks {
 public:
  /// REQUIRES: deviation > 0, and small enough for the type's scales (below 1000).
  SynthBlocks(kernels::TensorType type, double deviation);

  /// Blocks are made in groups of this many bytes, so that groups begin at whole words.
  int64_t group_bytes() const;

  /// Fills `out` with the tensor's bytes from `offset` on. REQUIRES: `offset` is a multiple of
  /// group_bytes(), `out` whole blocks.
  void fill(const SynthBits& bits, uint64_t offset, std::span<std::byte> out) const;

 private:
  static constexpr size_t kVariants = 16;

  void fill_floats(std::span<std::byte> out) const;
  void set_scales(uint8_t* block) const;

  kernels::TensorType type_;
  double unit_ = 0;  // what one step of a plain float is worth
  // Of MXFP4: the exponent as it is stored, and how many blocks of 256 have the next one.
  int exponent_ = 0, raised_ = 0;
  // Of each variant of a block: the scale and, of types that have one, the minimum, as f16 bits.
  std::array<uint16_t, kVariants> scales_ = {}, minima_ = {};
};

/// Numbers around 1 as norm weights are: 1 ± 0.1, from word `first` on.
void fill_norm(const SynthBits& bits, uint64_t first, std::span<float> out);

}  // namespace model
