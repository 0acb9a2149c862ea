// The loops that measuring consists of. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shm {

/// Sum of the 64-bit words of [data, data + bytes), with the widest loads of this CPU and enough
/// of them at a time to wait for memory only. REQUIRES: data aligned to 64, bytes a multiple of 8.
uint64_t read_words(const std::byte* data, size_t bytes);

inline constexpr size_t kLineBytes = 64;

/// Where the `step`-th stop of a walk over 2^bits lines lies: a permutation without a pattern that
/// a prefetcher could follow.
size_t chain_line(size_t step, int bits);

/// Makes lines [begin, end) of the walk point to their successors; the last points to the first.
/// Several threads may each make a part. REQUIRES: data has 2^bits lines.
void write_chain(std::byte* data, int bits, size_t begin, size_t end);

/// Follows `hops` pointers, each of which needs the one before; returns where it came.
const std::byte* chase(const std::byte* from, size_t hops);

}  // namespace shm
