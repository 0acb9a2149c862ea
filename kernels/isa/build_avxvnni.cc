#include "kernels/isa/build.h"
#include "kernels/isa/tables.h"
#include "kernels/isa/vnni256.h"

namespace kernels::isa {

// The same source as avx512vl, which is tested; no CPU with this encoding was at hand.
constinit const Ops kAvxVnniOps = make_ops<Vnni256<Vex>>("avxvnni", Tested::kNo);

}  // namespace kernels::isa
