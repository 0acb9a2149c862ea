// The tables of the instruction sets of this build. Constant; any thread.
#pragma once

#include "kernels/ops.h"

namespace kernels::isa {

extern const Ops kScalarOps;
extern const Ops kAvx2Ops;
extern const Ops kAvxVnniOps;   // 256 bits, VEX
extern const Ops kAvx512VlOps;  // 256 bits, EVEX
extern const Ops kAvx512VnniOps;

}  // namespace kernels::isa
