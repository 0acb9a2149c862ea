// From the GGUF file into a rank's memory: reads just the rows that the map names, checks them and
// packs them for the kernels. The only copy a weight ever makes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/result.h"
#include "engine/team.h"
#include "engine/weights.h"
#include "model/model.h"

namespace worker {

struct LoadOptions {
  engine::ThreadTeam* team = nullptr;  // does the work, and touches the memory first
  /// Called by one thread now and then with the bytes of `map` packed so far; may be empty.
  std::function<void(uint64_t)> on_progress;
};

/// Fills `memory` [map.bytes]. Errors: kNotFound or kBrokenFile if a file is gone, changed since
/// the directory was read, or shorter; kBrokenFile naming the tensor with a scale or weight that is
/// not a number.
base::Status load_weights(const model::Model& model, const engine::WeightMap& map,
                          std::byte* memory, const LoadOptions& options);

/// 64-bit hash of what the tokens depend on in the file: metadata, tensor table and the files'
/// identities. Two ranks with the same fingerprint loaded the same model.
uint64_t model_fingerprint(const model::Model& model);

}  // namespace worker
