#include "kernels/isa/avx512vnni.h"
#include "kernels/isa/build.h"
#include "kernels/isa/tables.h"

namespace kernels::isa {

constinit const Ops kAvx512VnniOps = make_ops<Avx512Vnni>("avx512vnni");

}  // namespace kernels::isa
