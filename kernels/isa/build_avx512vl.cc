#include "kernels/isa/build.h"
#include "kernels/isa/tables.h"
#include "kernels/isa/vnni256.h"

namespace kernels::isa {

constinit const Ops kAvx512VlOps = make_ops<Vnni256<Evex>>("avx512vl");

}  // namespace kernels::isa
