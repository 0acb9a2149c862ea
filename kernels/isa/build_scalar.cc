#include "kernels/isa/build.h"
#include "kernels/isa/scalar.h"
#include "kernels/isa/tables.h"

namespace kernels::isa {

constinit const Ops kScalarOps = make_ops<Scalar>("scalar");

}  // namespace kernels::isa
