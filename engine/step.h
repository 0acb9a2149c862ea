// One step of a group: some positions of some sequences go through all layers at once.
//
// The seam between the worker (which decides what to compute) and the maths (which computes it):
// the worker's tests put a scripted runner here, the real one drives every rank of the group.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"

namespace engine {

/// One token position of one sequence.
struct Column {
  int32_t token = 0;     // in [0, vocabulary)
  int32_t sequence = 0;  // index into Step::block_tables
  int64_t position = 0;  // of the token in its sequence; all earlier positions are in the KV cache
                         // or come before this column in the same step
  uint32_t wants_logits = 0;  // 0 or 1
};

struct Step {
  std::vector<Column> columns;  // [1 … kStepColumnsMax], positions of one sequence ascending
  /// KV blocks of each sequence; entry i holds positions [i, i + 1) * kKvBlockPositions.
  std::vector<std::vector<int32_t>> block_tables;
  /// The same of the layers that reach near positions only, with blocks of a pool of their own; -1
  /// where no column reaches any more. As long as `block_tables`; empty if there is no such pool.
  std::vector<std::vector<int32_t>> near_tables = {};
};

/// In StepOutput::fault_layer: no layer, the logits.
inline constexpr int32_t kLogitsFault = std::numeric_limits<int32_t>::max();

/// What a step gave. Borrowed from the runner, valid until its next run().
struct StepOutput {
  std::span<const float> logits;  // [columns that wanted them, in order][vocabulary]
  /// [columns] -1; or the layer whose router scores were not finite; or kLogitsFault if the
  /// column's logits were not. Its results are void then.
  std::span<const int32_t> fault_layer;
};

struct RunnerShape {
  int64_t vocabulary = 0;
  int64_t context = 0;         // positions a sequence may have
  int32_t kv_block_count = 0;  // blocks of the pool, ids [0, kv_block_count)
  int columns_max = 0;         // columns of one step
  int logit_columns_max = 0;   // columns of one step that may want logits
  /// Layers that reach at most near_span positions have blocks of their own, ids [0,
  /// kv_near_count); 0: they share those of all.
  int32_t kv_near_count = 0;
  int64_t near_span = 0;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual RunnerShape shape() const = 0;
  /// Runs one step on all ranks. Errors: kPeerLost, kTimeout, kCancelled; the group is unusable
  /// afterwards. Loop thread only.
  virtual base::Result<StepOutput> run(const Step& step) = 0;
};

}  // namespace engine
