// The tables that promise the same bits, and the one that the others are compared with.
#pragma once

#include <iterator>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kernels/ops.h"

namespace kernels::testing {

/// All types that have a packed layout.
inline constexpr TensorType kFastTypes[] = {
    TensorType::kF32,  TensorType::kF16,   TensorType::kBF16,   TensorType::kQ8_0,
    TensorType::kQ4_0, TensorType::kQ4_1,  TensorType::kQ5_0,   TensorType::kQ5_1,
    TensorType::kQ2_K, TensorType::kQ3_K,  TensorType::kQ4_K,   TensorType::kQ5_K,
    TensorType::kQ6_K, TensorType::kMXFP4, TensorType::kIQ4_NL, TensorType::kIQ4_XS};
static_assert(std::size(kFastTypes) == kLayoutCount - 1);

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
