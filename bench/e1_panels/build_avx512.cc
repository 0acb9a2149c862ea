#include "bench/e1_panels/kernel_list.h"
#include "kernels/isa/avx512vnni.h"

namespace e1 {

Build avx512_build() {
  return make_build<kernels::isa::Avx512Vnni>("avx512");
}

}  // namespace e1
