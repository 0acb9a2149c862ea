// Whether the scales of quantised rows, or the elements of plain ones, are numbers at all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats.h"

namespace kernels {

/// False if a row holds a NaN or an infinity: an element of F32, F16 or BF16, or a block's scale.
/// Reads one or two scales a block, so it costs little beside packing. Any thread.
bool rows_finite(TensorType type, const std::byte* rows, int64_t row_count, int64_t k);

}  // namespace kernels
