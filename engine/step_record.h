// A step as bytes: what the leader writes into shared memory and every rank reads.
//
//   StepHeader | Column [columns] | uint32 table_begin [sequences + 1]
//   | int32 block [table_begin.back()] | int32 near block [the same, or none]
//
// Ranks check every count, id and index before use: the bytes come from another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/buffer.h"
#include "engine/step.h"

namespace engine {

/// Bytes that the largest step of this shape takes.
size_t step_record_bytes_max(const RunnerShape& shape);

/// Writes `step` to `out`; returns the bytes used. Errors: kInvalidArgument for anything outside
/// `shape`.
base::Result<size_t> encode_step(const Step& step, const RunnerShape& shape,
                                 std::span<std::byte> out);

/// A decoded step, with memory of its own that is sized once.
class StepView {
 public:
  explicit StepView(const RunnerShape& shape);

  /// Replaces the content. Allocates nothing. Errors: kInvalidArgument, the content is then void.
  base::Status decode(std::span<const std::byte> record);

  std::span<const Column> columns() const { return {columns_.data(), column_count_}; }
  /// Indices of the columns that want logits.
  std::span<const int32_t> wanted() const { return {wanted_.data(), wanted_count_}; }
  /// KV blocks of a sequence.
  std::span<const int32_t> blocks(int32_t sequence) const {
    const auto s = static_cast<size_t>(sequence);
    return {blocks_.data() + table_begin_[s], table_begin_[s + 1] - table_begin_[s]};
  }
  /// KV blocks of the layers that reach near positions only: ids of their pool, -1 where no column
  /// of this step reaches; those of all layers if there is no such pool.
  std::span<const int32_t> near_blocks(int32_t sequence) const {
    if (shape_.kv_near_count == 0) return blocks(sequence);
    const auto s = static_cast<size_t>(sequence);
    return {near_.data() + table_begin_[s], table_begin_[s + 1] - table_begin_[s]};
  }
  /// Whether no sequence has more than one column: then no column reads another's new keys.
  bool one_column_each() const { return one_column_each_; }

 private:
  base::Status check_blocks(size_t count) const;
  base::Status check_columns();
  base::Status check_near(const Column& column) const;

  RunnerShape shape_;
  size_t column_count_ = 0, sequence_count_ = 0, wanted_count_ = 0;
  bool one_column_each_ = false;
  Buffer<Column> columns_;        // [columns_max]
  Buffer<int32_t> wanted_;        // [columns_max]
  Buffer<uint32_t> table_begin_;  // [kStepSequencesMax + 1]
  Buffer<int32_t> blocks_;        // [kStepSequencesMax * blocks of a context]
  Buffer<int32_t> near_;          // the same
  Buffer<int32_t> columns_seen_;  // [kStepSequencesMax] columns of each sequence
};

}  // namespace engine
