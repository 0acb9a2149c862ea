// What each instruction set of the experiment exports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/e1_panels/activations.h"
#include "kernels/ops.h"

namespace e1 {

/// y[column][panel][16]
struct Job {
  const std::byte* panels;  // [panel_count], for rows: GGUF rows
  int64_t panel_count;
  int64_t k;                      // multiple of 256
  const uint32_t* tiles;          // [column_count / C][k / 256] Tile<C>
  const Tile<1>* const* columns;  // [column_count] -> [k / 256]
  const RowBlock* const* rows;    // the same, for weights row by row
  int column_count;               // 1, or a multiple of 4 and at most 64
  float* y;
};

/// How activations of several columns lie, or kRows for weights row by row.
enum class Layout { kPointers, kSideBySide, kRows };
enum class Weights { kQ4_K, kQ8_0, kIQ3_S };

struct Kernel {
  const char* name;
  Weights weights;
  Kind kind;
  int tile_columns;  // 1 or 4; kRows takes any number
  Layout layout;
  void (*run)(const Job&);
};

struct Build {
  const char* name;
  std::span<const Kernel> kernels;
  int32_t (*read)(const std::byte* data, size_t bytes);
};
Build scalar_build();
Build avx2_build();
Build avx512_build();
/// Those that this machine can run, scalar first.
std::vector<Build> builds();

/// IQ3_S codebook as four bytes a code, and masks of the sign bits.
struct Codebook {
  uint32_t magnitudes[512];
  uint64_t signs[256];
};
const Codebook& codebook();

}  // namespace e1
