#include <array>

#include "bench/e1_panels/table.h"
#include "kernels/cpu.h"
#include "kernels/iq_tables.h"

namespace e1 {

const Codebook& codebook() {
  static const Codebook book = [] {
    Codebook b = {};
    for (size_t code = 0; code < 512; ++code) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t level = (uint32_t{kernels::kGridIq3S[code]} >> (3 * i)) & 7;
        b.magnitudes[code] |= (2 * level + 1) << (8 * i);
      }
    }
    for (uint64_t byte = 0; byte < 256; ++byte) {
      for (uint64_t i = 0; i < 8; ++i) b.signs[byte] |= (byte >> i & 1) * 0xff << (8 * i);
    }
    return b;
  }();
  return book;
}

std::vector<Build> builds() {
  const kernels::CpuFeatures cpu = kernels::cpu_features();
  std::vector<Build> all = {scalar_build()};
  if (cpu.avx2) all.push_back(avx2_build());
  if (cpu.avx512_vnni) all.push_back(avx512_build());
  return all;
}

}  // namespace e1
