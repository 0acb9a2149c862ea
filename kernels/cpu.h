// What this CPU and operating system can run. Pure; any thread.
#pragma once

namespace kernels {

struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C, and ymm registers saved by the operating system
  bool avx_vnni = false;     // the VEX form of the byte products, and avx2
  bool avx512_vnni = false;  // F, BW, DQ, VL and VNNI, avx2, and zmm registers saved
};

CpuFeatures cpu_features();

}  // namespace kernels
