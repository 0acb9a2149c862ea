// The tables that promise the same bits, and the one that the others are compared with.
#pragma once

#include <string_view>
#include <vector>

#include "base/check.h"
#include "kernels/ops.h"

namespace kernels::testing {

/// A table that this machine can run.
inline const Ops& table(std::string_view name) {
  auto found = find_ops(name);
  CHECK(found.ok(), found.error().message);
  return **found;
}
inline const Ops& scalar() {
  return table("scalar");
}

/// All tables that promise equal bits and that this machine can run.
inline std::vector<const Ops*> equal_tables() {
  std::vector<const Ops*> tables;
  for (const Ops* ops : all_ops()) {
    if (!ops->is_reference && can_run(*ops)) tables.push_back(ops);
  }
  return tables;
}

}  // namespace kernels::testing
