// Hashes have published values, and leave the thread as they found it.
#include "shm/checksum.h"

#include <cpuid.h>
#include <gtest/gtest.h>

#include <vector>

namespace shm {
namespace {

TEST(Checksum, OfNothingIsThePublishedOne) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(hash128({}).low, 0x6001c324468d497fu);
  EXPECT_EQ(hash128({}).high, 0x99aa06d3014798d8u);
}

// Which parts of the registers are in use (XINUSE), if this CPU tells.
bool upper_halves_in_use(bool* known) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  *known = __get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 4) != 0 &&
           __builtin_cpu_supports("avx");
  if (!*known) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 4) != 0;
}

TEST(Checksum, LeavesNoUpperHalvesInUse) {
  const std::vector<std::byte> bytes(1 << 20, std::byte{7});
  bool known = false;
  upper_halves_in_use(&known);
  if (!known) GTEST_SKIP() << "this CPU does not tell which registers are in use";
  volatile uint64_t kept = hash64(bytes);
  EXPECT_FALSE(upper_halves_in_use(&known));
  kept = hash128(bytes).low;
  EXPECT_FALSE(upper_halves_in_use(&known));
  (void)kept;
}

}  // namespace
}  // namespace shm
