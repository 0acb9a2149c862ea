#include "bench/e1_panels/experiment.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/half.h"

namespace e1 {

double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double core_ghz() {
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    const double start = seconds();
    for (int i = 0; i < 500000; ++i) {
      asm volatile(".rept 16\n add $1, %%rax\n .endr" ::: "rax");
    }
    best = std::min(best, seconds() - start);
  }
  return 8e-3 / best;
}

Memory::Memory(size_t bytes) : bytes_(bytes) {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    std::fprintf(stderr, "e1_panels: cannot map %zu bytes; ask for fewer MiB\n", bytes_);
    std::exit(1);
  }
  madvise(p, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}
Memory::~Memory() {
  munmap(data_, bytes_);
}

kernels::TensorType tensor_type(Weights weights) {
  switch (weights) {
    case Weights::kQ4_K: return kernels::TensorType::kQ4_K;
    case Weights::kQ8_0: return kernels::TensorType::kQ8_0;
    case Weights::kIQ3_S: return kernels::TensorType::kIQ3_S;
  }
  return kernels::TensorType::kF32;
}

std::vector<std::byte> random_rows(Weights weights, int64_t rows, Random& random) {
  const kernels::TypeInfo& info = kernels::type_info(tensor_type(weights));
  const int64_t blocks = kLength / info.block_weights;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * blocks * info.block_bytes));
  std::byte* block = bytes.data();
  for (int64_t b = 0; b < rows * blocks; ++b, block += info.block_bytes) {
    for (int i = 0; i < info.block_bytes; ++i) {
      block[i] = b < 16 * blocks ? std::byte{0xff} : static_cast<std::byte>(random() % 256);
    }
    const int scales = weights == Weights::kQ4_K ? 2 : 1;  // float16 at the start of a block
    for (int s = 0; s < scales; ++s) {
      const float d = 1e-3f * (1 + static_cast<float>(random() % 1000) / 1000);
      const uint16_t half = kernels::f32_to_f16_clamped(d);
      std::memcpy(block + 2 * s, &half, 2);
    }
  }
  return bytes;
}

size_t pack(Weights weights, const std::vector<std::byte>& rows, int64_t row_count, std::byte* to) {
  if (weights == Weights::kIQ3_S) {
    std::memcpy(to, rows.data(), rows.size());
    return rows.size();
  }
  const kernels::TensorType type = tensor_type(weights);
  const auto layout = weights == Weights::kQ4_K ? kernels::Layout::kQ4_K : kernels::Layout::kQ8_0;
  const size_t bytes = kernels::panel_bytes(layout, type, kLength);
  const size_t stride = static_cast<size_t>(16 * kernels::row_bytes(type, kLength));
  for (size_t p = 0; p < static_cast<size_t>(row_count) / 16; ++p) {
    kernels::pack_panel(layout, type, rows.data() + p * stride, 16, kLength, to + p * bytes);
  }
  return static_cast<size_t>(row_count) / 16 * bytes;
}

float heavy(Random& random) {
  std::normal_distribution<float> normal;
  float squares = 0;
  for (int i = 0; i < 3; ++i) {
    const float g = normal(random);
    squares += g * g;
  }
  return normal(random) / std::sqrt(squares / 3) * (random() % 1000 < 3 ? 50.0f : 1.0f);
}

std::vector<std::vector<float>> heavy_columns(int count, Random& random) {
  std::vector<std::vector<float>> columns(static_cast<size_t>(count));
  for (auto& column : columns) {
    for (int64_t i = 0; i < kLength; ++i) column.push_back(heavy(random));
  }
  return columns;
}

void run(const Kernel& kernel, const std::byte* panels, int64_t rows, const Columns& columns,
         int column_count, float* y) {
  kernel.run({.panels = panels,
              .panel_count = rows / 16,
              .k = kLength,
              .tiles = columns.tiles(),
              .columns = columns.pointers(),
              .rows = columns.rows(),
              .column_count = column_count,
              .y = y});
}

}  // namespace e1
