// The tables of the instruction sets of this build. Constant; any thread.
#pragma once

#include "kernels/ops.h"

namespace kernels::isa {

extern const Ops kScalarOps;
extern const Ops kAvx2Ops;

}  // namespace kernels::isa
