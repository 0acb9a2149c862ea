#include "shm/probe_loops.h"

#include <cstring>

namespace shm {

namespace {

// 32 sums are four registers of 512 bits or eight of 256: enough additions in flight. Inlined into
// one function per instruction set, so that the compiler vectorises it for each.
__attribute__((always_inline)) inline uint64_t sum_words(const uint64_t* words, size_t count) {
  constexpr size_t kSums = 32;
  uint64_t sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t lane = 0; lane < kSums; ++lane) sums[lane] += words[i + lane];
  uint64_t sum = 0;
  for (; i < count; ++i) sum += words[i];
  for (const uint64_t lane : sums) sum += lane;
  return sum;
}

uint64_t sum_plain(const uint64_t* words, size_t count) {
  return sum_words(words, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t sum_avx2(const uint64_t* words, size_t count) {
  return sum_words(words, count);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) uint64_t sum_avx512(
    const uint64_t* words, size_t count) {
  return sum_words(words, count);
}
#endif

}  // namespace

__attribute__((noinline)) uint64_t read_words(const std::byte* data, size_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  const size_t count = bytes / sizeof(uint64_t);
  auto* sum_best = sum_plain;
#if defined(__x86_64__)
  // Not by target_clones: sanitizers are not ready when its resolvers run.
  if (__builtin_cpu_supports("avx2")) sum_best = sum_avx2;
  if (__builtin_cpu_supports("avx512f")) sum_best = sum_avx512;
#endif
  const uint64_t sum = sum_best(words, count);
  asm volatile("" : : "r"(sum));  // the loads are wanted also by those who drop the sum
  return sum;
}

// Odd factors and shifts to the right of a number of `bits` bits can be undone, so this permutes.
size_t chain_line(size_t step, int bits) {
  const size_t mask = (size_t{1} << bits) - 1;
  const int half = (bits + 1) / 2;
  size_t line = step & mask;
  line = line * 0x9e3779b97f4a7c15 & mask;
  line ^= line >> half;
  line = line * 0xbf58476d1ce4e5b9 & mask;
  line ^= line >> half;
  return line;
}

void write_chain(std::byte* data, int bits, size_t begin, size_t end) {
  for (size_t step = begin; step < end; ++step) {
    const std::byte* next = data + chain_line(step + 1, bits) * kLineBytes;
    std::memcpy(data + chain_line(step, bits) * kLineBytes, &next, sizeof next);
  }
}

__attribute__((noinline)) const std::byte* chase(const std::byte* from, size_t hops) {
  for (size_t hop = 0; hop < hops; ++hop) std::memcpy(&from, from, sizeof from);
  asm volatile("" : : "r"(from));
  return from;
}

}  // namespace shm
