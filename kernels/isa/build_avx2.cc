#include "kernels/isa/avx2.h"
#include "kernels/isa/build.h"
#include "kernels/isa/tables.h"

namespace kernels::isa {

constinit const Ops kAvx2Ops = make_ops<Avx2>("avx2");

}  // namespace kernels::isa
