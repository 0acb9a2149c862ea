// What this CPU and operating system can run. Pure; any thread.
#pragma once

namespace kernels {

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C, and ymm registers saved by the operating system
  bool avx512 = false;  // F, BW, DQ, VL and VNNI, and zmm registers saved
};

CpuFeatures cpu_features();

}  // namespace kernels
