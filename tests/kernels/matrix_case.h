// Matrices for kernel tests: random rows of a GGUF type, activations, what the product is exactly,
// and a runner whose buffers end at protected pages. Deterministic from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/kernels/guarded_buffer.h"

namespace kernels::testing {

enum class Codes {
  kSane,     // random codes, small scales
  kExtreme,  // codes and scales at their ends, subnormal and large scales
};
enum class Values {
  kNormal,
  kHeavy,    // a few elements far larger than the rest
  kExtreme,  // 1e30, subnormals, zeros, equal values
};

struct CaseSpec {
  TensorType type = TensorType::kF32;
  int64_t k = 0;
  int64_t rows = 0;
  int columns = 0;
  Codes codes = Codes::kSane;
  Values values = Values::kNormal;
  uint32_t seed = 1;
};
std::string describe(const CaseSpec& spec);

struct MatrixCase {
  explicit MatrixCase(const CaseSpec& spec);

  CaseSpec spec;
  std::vector<std::byte> rows;        // [rows] GGUF rows
  std::vector<std::vector<float>> x;  // [columns][k]
};

/// Rows [first_row, first_row + row_count) packed for `ops`.
GuardedBuffer<std::byte> pack_rows(const MatrixCase& matrix, const Ops& ops, int64_t first_row,
                                   int64_t row_count);
/// Column `c` in the format that the layout of `ops` wants.
GuardedBuffer<std::byte> pack_column(const MatrixCase& matrix, const Ops& ops, int c);

/// Part of a product.
struct Part {
  int64_t first_row = 0;  // a multiple of kPanelRows
  int64_t row_count = 0;
  int first_column = 0;
  int columns = 0;
};
inline Part whole(const CaseSpec& spec) {
  return {0, spec.rows, 0, spec.columns};
}

/// Runs one matmul; outputs [columns][rows], each column in its own guarded buffer before it is
/// copied here.
std::vector<float> run(const MatrixCase& matrix, const Ops& ops, const Part& part);

/// Empty if `y` is within rounding of the product in double precision of the dequantised weights
/// with the activations as the layout of `ops` sees them; else what is wrong. An independent path:
/// it reads weights through dequantise_row and activations by their documented meaning.
std::string compare_with_double(const MatrixCase& matrix, const Ops& ops, const Part& part,
                                const std::vector<float>& y);

/// Empty if `ops` gives the bytes of `expected` (the same table of another instruction set) and the
/// right values.
std::string check_product(const MatrixCase& matrix, const Ops& ops, const Ops& expected);

/// The elements that packed activations stand for.
std::vector<double> unpack_activations(ActivationFormat format, const std::byte* packed, int64_t k);

}  // namespace kernels::testing
