#include "kernels/cpu.h"

#include <cpuid.h>

#include <cstdint>

namespace kernels {

namespace {

/// Register state that the operating system saves (XCR0). REQUIRES: CPUID reports OSXSAVE.
uint64_t saved_state() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

}  // namespace

CpuFeatures cpu_features() {
  CpuFeatures features;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  if ((c & bit_OSXSAVE) == 0) return features;
  const bool fma = (c & bit_FMA) != 0 && (c & bit_F16C) != 0;
  const uint64_t saved = saved_state();
  const bool ymm = (saved & 0x06) == 0x06;
  const bool zmm = (saved & 0xe6) == 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features.avx2 = ymm && fma && (b & bit_AVX2) != 0;
  constexpr uint32_t kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  features.avx512_vnni =
      features.avx2 && zmm && (b & kAvx512) == kAvx512 && (c & bit_AVX512VNNI) != 0;
  if (a >= 1) {  // the highest sub-leaf
    __cpuid_count(7, 1, a, b, c, d);
    features.avx_vnni = features.avx2 && (a & bit_AVXVNNI) != 0;
  }
  return features;
}

}  // namespace kernels
