// The table of one instruction set, filled from the templates. Included by the build_*.cc only,
// each compiled with the flags of its instruction set.
//
// Everything in such a file must be a member of a template over its vocabulary: a plain inline
// function would be compiled with these flags, and the linker might keep that copy for everybody.
#pragma once

#include "kernels/attention.h"
#include "kernels/format_float.h"
#include "kernels/format_mxfp4.h"
#include "kernels/format_q4_k.h"
#include "kernels/format_q6_k.h"
#include "kernels/format_q8_0.h"
#include "kernels/ops.h"
#include "kernels/quantise.h"
#include "kernels/reference.h"
#include "kernels/vector_ops.h"

namespace kernels::isa {

enum class Tested { kNo, kYes };

template <class V>
constexpr Ops make_ops(const char* name, Tested tested = Tested::kYes) {
  return {
      .name = name,
      .is_reference = false,
      .is_tested = tested == Tested::kYes,
      .matmul = {matmul_rows, matmul<V, FormatF32>, matmul<V, FormatF16>, matmul<V, FormatBF16>,
                 matmul<V, FormatQ8_0>, matmul<V, FormatQ4_K>, matmul<V, FormatQ6_K>,
                 matmul<V, FormatMXFP4>},
      .quantise = Quantiser<V>::quantise,
      .quantise_32 = Quantiser<V>::quantise_32,
      .rms_norm = VectorOps<V>::rms_norm,
      .silu_multiply = VectorOps<V>::silu_multiply,
      .clamped_swiglu = VectorOps<V>::clamped_swiglu,
      .add = VectorOps<V>::add,
      .multiply_add = VectorOps<V>::multiply_add,
      .softmax = VectorOps<V>::softmax,
      .rope = VectorOps<V>::rope,
      .store_k = Attention<V>::store_k,
      .store_v = Attention<V>::store_v,
      .attend = Attention<V>::attend,
  };
}

}  // namespace kernels::isa
