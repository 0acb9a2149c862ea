// What the sections of the experiment share: inputs, memory, time. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/e1_panels/table.h"

namespace e1 {

using Random = std::mt19937_64;
inline constexpr int64_t kLength = 2048;  // k

/// Processor time of this thread: what others run on the core in between does not count.
double seconds();
/// Clock of this core now, from a chain of one-cycle additions.
double core_ghz();

/// Zeroed, with huge pages where the system grants them.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

kernels::TensorType tensor_type(Weights weights);
/// GGUF rows of random codes with small scales; the first 16 rows have all bits set in their codes.
std::vector<std::byte> random_rows(Weights weights, int64_t rows, Random& random);
/// Rows as the kernels want them: packed, or (IQ3_S) as they are. Returns the bytes used.
size_t pack(Weights weights, const std::vector<std::byte>& rows, int64_t row_count, std::byte* to);

/// Student t with three degrees of freedom and some larger outliers.
float heavy(Random& random);
std::vector<std::vector<float>> heavy_columns(int count, Random& random);

/// One kernel on panels and columns; y is [columns][rows].
void run(const Kernel& kernel, const std::byte* panels, int64_t rows, const Columns& columns,
         int column_count, float* y);

// Sections; each prints its table.
/// Returns the number of kernels that differ or are wrong.
int check();
void accuracy();
void decode(size_t mib, int rounds);
void prefill(int rounds);

}  // namespace e1
