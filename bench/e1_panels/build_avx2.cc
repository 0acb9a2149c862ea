#include "bench/e1_panels/kernel_list.h"
#include "kernels/isa/avx2.h"

namespace e1 {

Build avx2_build() {
  return make_build<kernels::isa::Avx2>("avx2");
}

}  // namespace e1
