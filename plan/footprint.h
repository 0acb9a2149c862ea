// What a rank holds of a model: every slice of a tensor with its bytes as they are packed, and in
// which part of a layer it is multiplied.
//
// The sizes are those of engine/weights.h, which a test compares; plan/ may not include it. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "plan/plan.h"
#include "plan/planner.h"

namespace plan {

/// Parts of a layer between two waits, and what is outside of layers.
enum class Phase {
  kInput,    // queries, keys and values; of a latent what goes down to it
  kQueries,  // of a latent: from compressed queries
  kAbsorb,   // of a latent: its keys' projection, applied to queries
  kValues,   // of a latent: its values' projection, applied to results
  kOutput,   // of attention
  kRouter,
  kGateUp,
  kDown,
  kLogits,
  kLookup,  // rows looked up or vectors: no product
};
inline constexpr int kPhaseCount = 10;

/// Rows of one or several matrices of one shape.
struct Piece {
  Phase phase = Phase::kLookup;
  kernels::TensorType type = kernels::TensorType::kF32;  // as it is packed
  int64_t row_length = 0;
  int64_t rows = 0;           // own ones, of each matrix
  int64_t matrices = 1;       // held
  bool chosen = false;        // only the experts that a token chose are multiplied
  bool shared_use = false;    // the experts' neighbour that all tokens use
  uint64_t matrix_bytes = 0;  // packed, whole panels

  uint64_t bytes() const { return static_cast<uint64_t>(matrices) * matrix_bytes; }
  int64_t panels() const { return (rows + 15) / 16; }
};

struct RankFootprint {
  std::vector<std::vector<Piece>> layers;
  std::vector<Piece> ends;    // embedding and output
  uint64_t weight_bytes = 0;  // of all, with the padding between slices
};

RankFootprint footprint(const model::Model& model, const RankShare& share, const Packing& packing);

/// Blocks of a KV pool, as worker/near_blocks.h counts them.
struct KvBlocks {
  int64_t all = 0;
  int64_t near = 0;  // of each layer that reaches near positions only; 0: as many as the others
};
struct KvRoom {
  int64_t context = 0;  // positions of a sequence
  int64_t sequences = 1;
  int chunk = 256;
};
KvBlocks kv_blocks(const model::ModelSpec& spec, const KvRoom& room);

/// Bytes that a rank's KV pool takes.
uint64_t kv_pool_bytes(const model::ModelSpec& spec, const RankShare& share, KvElement kv,
                       KvBlocks blocks);
/// Bytes of it that a token at that position reads.
uint64_t kv_read_bytes(const model::ModelSpec& spec, const RankShare& share, KvElement kv,
                       int64_t position);

/// Floats that each rank hands to the others in the phases of a layer, of one column.
struct HandedFloats {
  int64_t input = 0;  // full-width norms; the latent and compressed queries
  int64_t heads = 0;
  int64_t hidden = 0;  // after attention, and after the feed-forward
  int64_t router = 0;
  int64_t middle = 0;  // between up and down; of whole experts: what the slots gave
};
/// Of all ranks together.
HandedFloats handed_floats(const model::ModelSpec& spec, const Plan& plan, size_t layer);

/// Bytes of a rank's region of the exchange, and of the buffers of its threads.
uint64_t exchange_bytes(const model::ModelSpec& spec, const Plan& plan, int chunk);
/// What a rank keeps at most between the parts of a long context that its threads attend to.
inline constexpr uint64_t kAttendedBytesMax = uint64_t{16} << 20;
struct ScratchOf {
  int threads = 1;
  int chunk = 256;
  bool leads = false;  // keeps the logits
};
uint64_t scratch_bytes(const model::ModelSpec& spec, const RankShare& share, const ScratchOf& of);

}  // namespace plan
