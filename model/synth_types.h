// Which type each tensor of a synthetic model gets, as published quantised files have it.
//
// Norms, biases and routers are F32. Of quantised types the head is Q6_K (Q5_K with the types below
// three bits; Q8_0 with Q8_0 and MXFP4), as llama-quantize makes it; of MXFP4 only the experts, all
// else being Q8_0. A row that is no whole number of blocks gets the next larger type with blocks of
// 32, as there, or F16. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kernels/formats.h"
#include "model/synth_shapes.h"

namespace model {

/// "q4_k" or "Q4_K". Errors: kInvalidArgument with the names of all types.
base::Result<kernels::TensorType> synth_weight_type(std::string_view name);

/// The type of a tensor in a file of weights of `type`.
kernels::TensorType synth_tensor_type(kernels::TensorType type, const SynthTensor& tensor);

/// `general.file_type` of such a file.
int64_t synth_file_type(kernels::TensorType type);

}  // namespace model
