// XXH3 hashes of bytes. The seam to xxhash. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shm {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

uint64_t hash64(std::span<const std::byte> bytes);
Hash128 hash128(std::span<const std::byte> bytes);

}  // namespace shm
