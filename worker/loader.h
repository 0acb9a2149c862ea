// From the GGUF file into a rank's memory: reads just the rows that the map names, checks them,
// packs them for the kernels and hashes them on the way. The only copy a weight ever makes.
//
// Reading goes around the page cache where the file is not in it already (source_reader.h), ahead
// of the threads that pack (read_ahead.h). Thread rule: one call at a time per team.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/team.h"
#include "engine/weights.h"
#include "model/model.h"
#include "shm/checksum.h"
#include "worker/content_hash.h"

namespace worker {

class ModelSource;

struct LoadOptions {
  engine::ThreadTeam* team = nullptr;  // does the work, and touches the memory first
  /// Called by the calling thread several times a second with the bytes of the map done so far; an
  /// error ends the load, which returns it. May be empty.
  std::function<base::Status(uint64_t)> on_progress;
  ModelSource* source = nullptr;                       // instead of the model's files
  size_t span_bytes = (size_t{2} << 20) - (16 << 10);  // of one read, at most; one huge page
  int reads_ahead = 8;  // in flight at most, beside the threads of the team
};

struct LoadResult {
  /// This rank's share of the content hash: the sum over all ranks, modulo 2^128, is the same for
  /// every plan (content_hash.h).
  shm::Hash128 content;
  /// [map.slices] XXH3-128 of the packed bytes of each slice; zero for an empty one.
  std::vector<shm::Hash128> checksums;
};

/// Fills `memory` [map.bytes]. Errors: kNotFound or kBrokenFile if a file is gone, changed since
/// the directory was read or while it was read, shorter, or unreadable; kBrokenFile naming the
/// tensor with a scale or weight that is not a number.
base::Result<LoadResult> load_weights(const RankSlices& slices, std::byte* memory,
                                      const LoadOptions& options);

/// Only reads and hashes: LoadResult::content as load_weights() would give it now. The same errors,
/// but numbers are not looked at.
base::Result<shm::Hash128> hash_weights(const RankSlices& slices, const LoadOptions& options);

/// 64-bit hash of what the tokens depend on in the file: metadata, tensor table and the files'
/// identities. Two ranks with the same fingerprint loaded the same model.
uint64_t model_fingerprint(const model::Model& model);

}  // namespace worker
