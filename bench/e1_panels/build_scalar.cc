#include "bench/e1_panels/kernel_list.h"
#include "kernels/isa/scalar.h"

namespace e1 {

Build scalar_build() {
  return make_build<kernels::isa::Scalar>("scalar");
}

}  // namespace e1
