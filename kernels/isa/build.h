// The table of one instruction set, filled from the templates. Included by the build_*.cc only,
// each compiled with the flags of its instruction set.
//
// Everything in such a file must be a member of a template over its vocabulary: a plain inline
// function would be compiled with these flags, and the linker might keep that copy for everybody.
#pragma once

#include "kernels/attention.h"
#include "kernels/format_list.h"
#include "kernels/ops.h"
#include "kernels/quantise.h"
#include "kernels/reference.h"
#include "kernels/vector_ops.h"

namespace kernels::isa {

enum class Tested { kNo, kYes };

/// The products of all layouts: a member of a template, as everything here.
template <class V>
struct Products {
  Ops& ops;
  template <class Format>
  constexpr void operator()() const {
    ops.matmul[static_cast<size_t>(Format::kLayout)] = matmul<V, Format>;
  }
};

template <class V>
constexpr Ops make_ops(const char* name, Tested tested = Tested::kYes) {
  Ops ops = {
      .name = name,
      .is_reference = false,
      .is_tested = tested == Tested::kYes,
      .matmul = {matmul_rows},
      .quantise = Quantiser<V>::quantise,
      .quantise_32 = Quantiser<V>::quantise_32,
      .rms_norm = VectorOps<V>::rms_norm,
      .silu_multiply = VectorOps<V>::silu_multiply,
      .clamped_swiglu = VectorOps<V>::clamped_swiglu,
      .add = VectorOps<V>::add,
      .multiply_add = VectorOps<V>::multiply_add,
      .softmax = VectorOps<V>::softmax,
      .exp = VectorOps<V>::exp_scaled,
      .rope = VectorOps<V>::rope,
      .store_k = Attention<V>::store_k,
      .store_v = Attention<V>::store_v,
      .attend = Attention<V>::attend,
      .attend_merge = Attention<V>::merge,
      .attend_finish = Attention<V>::finish,
  };
  Formats::for_each(Products<V>{ops});
  return ops;
}

}  // namespace kernels::isa
