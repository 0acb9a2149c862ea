// The table `reference`: what every operation means, as plain loops in double precision.
//
// Weights are dequantised exactly, activations stay float32, sums are double, results are rounded
// to float32 once. It is the mathematically right answer for the stored weights, slow, and another
// arithmetic than the other tables: their bits differ from its bits. Its exp is libm's. Any thread,
// no function allocates.
#pragma once

#include "kernels/ops.h"

namespace kernels {

const Ops& reference_ops();

/// Matmul of Layout::kRows with float32 activations. Bits are the same on every CPU, so all tables
/// use it for the types that have no fast path.
void matmul_rows(const MatmulArgs& args);

}  // namespace kernels
