// Which table runs: by name, or the fastest that this machine can run.
#include <string>

#include "kernels/cpu.h"
#include "kernels/isa/tables.h"
#include "kernels/ops.h"
#include "kernels/reference.h"

namespace kernels {

bool can_run(const Ops& ops) {
  const CpuFeatures cpu = cpu_features();
  if (&ops == &isa::kAvx2Ops) return cpu.avx2;
  if (&ops == &isa::kAvxVnniOps) return cpu.avx_vnni;
  if (&ops == &isa::kAvx512VlOps || &ops == &isa::kAvx512VnniOps) return cpu.avx512_vnni;
  return true;
}

std::vector<const Ops*> all_ops() {
  return {&reference_ops(),  &isa::kScalarOps,   &isa::kAvx2Ops,
          &isa::kAvxVnniOps, &isa::kAvx512VlOps, &isa::kAvx512VnniOps};
}

base::Result<const Ops*> find_ops(std::string_view name) {
  const std::vector<const Ops*> tables = all_ops();
  if (name == "auto") {
    for (auto i = tables.rbegin(); i != tables.rend(); ++i) {
      if ((*i)->is_tested && can_run(**i)) return *i;
    }
  }
  std::string known;
  for (const Ops* ops : tables) {
    if (ops->name == name) {
      if (can_run(*ops)) return ops;
      return base::Error{base::Code::kUnsupported,
                         base::cat("this CPU or operating system cannot run the instruction set '",
                                   name, "'; use 'auto' or 'scalar'")};
    }
    known += base::cat(", ", std::string_view(ops->name));
  }
  return base::Error{base::Code::kInvalidArgument,
                     base::cat("unknown instruction set '", name, "'; known are auto", known)};
}

}  // namespace kernels
