#include "engine/step_record.h"

#include <algorithm>
#include <cstring>

#include "base/limits.h"

namespace engine {

namespace {

struct StepHeader {
  uint32_t column_count;
  uint32_t sequence_count;
  uint32_t block_count;
  uint32_t near_count;  // block_count, or 0 without a pool of near blocks
};
static_assert(sizeof(StepHeader) == 16);

size_t blocks_of_context(const RunnerShape& shape) {
  return static_cast<size_t>((shape.context + base::kKvBlockPositions - 1) /
                             base::kKvBlockPositions);
}

// In int32, of all sequences.
size_t near_blocks_max(const RunnerShape& shape) {
  return shape.kv_near_count == 0 ? 0 : base::kStepSequencesMax * blocks_of_context(shape);
}

base::Error invalid(std::string message) {
  return {base::Code::kInvalidArgument, "step record: " + std::move(message)};
}

}  // namespace

size_t step_record_bytes_max(const RunnerShape& shape) {
  return sizeof(StepHeader) + static_cast<size_t>(shape.columns_max) * sizeof(Column) +
         (base::kStepSequencesMax + 1) * sizeof(uint32_t) +
         base::kStepSequencesMax * blocks_of_context(shape) * sizeof(int32_t) +
         near_blocks_max(shape) * sizeof(int32_t);
}

base::Result<size_t> encode_step(const Step& step, const RunnerShape& shape,
                                 std::span<std::byte> out) {
  if (step.columns.empty() || step.columns.size() > static_cast<size_t>(shape.columns_max)) {
    return invalid(base::cat(step.columns.size(), " columns, 1 to ", shape.columns_max, " fit"));
  }
  if (step.block_tables.size() > base::kStepSequencesMax) {
    return invalid(base::cat(step.block_tables.size(), " sequences, at most ",
                             base::kStepSequencesMax, " fit"));
  }
  size_t block_count = 0, near_count = 0;
  for (const auto& table : step.block_tables) block_count += table.size();
  for (const auto& table : step.near_tables) near_count += table.size();
  for (size_t s = 0; s < step.block_tables.size() && shape.kv_near_count > 0; s++) {
    if (s >= step.near_tables.size() || step.near_tables[s].size() != step.block_tables[s].size())
      return invalid(base::cat("the table of near blocks of sequence ", s, " has another length"));
  }
  if (near_count != (shape.kv_near_count > 0 ? block_count : 0))
    return invalid(base::cat(near_count, " near blocks beside ", block_count));
  const size_t bytes = sizeof(StepHeader) + step.columns.size() * sizeof(Column) +
                       (step.block_tables.size() + 1) * sizeof(uint32_t) +
                       (block_count + near_count) * sizeof(int32_t);
  if (bytes > out.size()) {
    return invalid(base::cat(bytes, " bytes, the board has ", out.size()));
  }

  std::byte* at = out.data();
  const auto write = [&at](const void* from, size_t size) {
    if (size > 0) std::memcpy(at, from, size);
    at += size;
  };
  const StepHeader header{static_cast<uint32_t>(step.columns.size()),
                          static_cast<uint32_t>(step.block_tables.size()),
                          static_cast<uint32_t>(block_count), static_cast<uint32_t>(near_count)};
  write(&header, sizeof header);
  write(step.columns.data(), step.columns.size() * sizeof(Column));
  uint32_t begin = 0;
  for (const auto& table : step.block_tables) {
    write(&begin, sizeof begin);
    begin += static_cast<uint32_t>(table.size());
  }
  write(&begin, sizeof begin);
  for (const auto& table : step.block_tables) write(table.data(), table.size() * sizeof(int32_t));
  for (const auto& table : step.near_tables) write(table.data(), table.size() * sizeof(int32_t));
  return bytes;
}

StepView::StepView(const RunnerShape& shape)
    : shape_(shape),
      columns_(static_cast<size_t>(shape.columns_max)),
      wanted_(static_cast<size_t>(shape.columns_max)),
      table_begin_(base::kStepSequencesMax + 1),
      blocks_(base::kStepSequencesMax * blocks_of_context(shape)),
      near_(near_blocks_max(shape)),
      columns_seen_(base::kStepSequencesMax) {}

base::Status StepView::decode(std::span<const std::byte> record) {
  column_count_ = sequence_count_ = wanted_count_ = 0;
  StepHeader header;
  if (record.size() < sizeof header) return invalid("shorter than its header");
  std::memcpy(&header, record.data(), sizeof header);
  if (header.column_count == 0 || header.column_count > columns_.size() ||
      header.sequence_count > base::kStepSequencesMax || header.block_count > blocks_.size() ||
      header.near_count != (shape_.kv_near_count > 0 ? header.block_count : 0)) {
    return invalid(base::cat("counts out of range: ", header.column_count, " columns, ",
                             header.sequence_count, " sequences, ", header.block_count, " blocks"));
  }
  const size_t columns_bytes = header.column_count * sizeof(Column);
  const size_t begin_bytes = (header.sequence_count + 1) * sizeof(uint32_t);
  const size_t blocks_bytes = header.block_count * sizeof(int32_t);
  const size_t near_bytes = header.near_count * sizeof(int32_t);
  if (record.size() < sizeof header + columns_bytes + begin_bytes + blocks_bytes + near_bytes) {
    return invalid("shorter than its counts say");
  }
  const std::byte* at = record.data() + sizeof header;
  std::memcpy(columns_.data(), at, columns_bytes);
  std::memcpy(table_begin_.data(), at + columns_bytes, begin_bytes);
  at += columns_bytes + begin_bytes;
  if (blocks_bytes > 0) std::memcpy(blocks_.data(), at, blocks_bytes);
  if (near_bytes > 0) std::memcpy(near_.data(), at + blocks_bytes, near_bytes);

  if (table_begin_[0] != 0 || table_begin_[header.sequence_count] != header.block_count) {
    return invalid("block tables do not cover the blocks");
  }
  for (size_t s = 0; s < header.sequence_count; s++) {
    if (table_begin_[s] > table_begin_[s + 1]) return invalid("block tables out of order");
  }
  RETURN_IF_ERROR(check_blocks(header.block_count));
  column_count_ = header.column_count;
  sequence_count_ = header.sequence_count;
  return check_columns();
}

base::Status StepView::check_blocks(size_t count) const {
  for (size_t i = 0; i < count; i++) {
    if (blocks_[i] < 0 || blocks_[i] >= shape_.kv_block_count) {
      return invalid(base::cat("KV block ", blocks_[i], " of ", shape_.kv_block_count));
    }
    if (shape_.kv_near_count > 0 && (near_[i] < -1 || near_[i] >= shape_.kv_near_count)) {
      return invalid(base::cat("near KV block ", near_[i], " of ", shape_.kv_near_count));
    }
  }
  return {};
}

// All that the column reaches must be there.
base::Status StepView::check_near(const Column& column) const {
  const auto near = near_blocks(column.sequence);
  const int64_t first = std::max<int64_t>(column.position - shape_.near_span + 1, 0);
  for (int64_t b = first / base::kKvBlockPositions; b <= column.position / base::kKvBlockPositions;
       b++) {
    if (near[static_cast<size_t>(b)] < 0)
      return invalid(base::cat("no near KV block for positions from ", b * base::kKvBlockPositions,
                               ", which position ", column.position, " reaches"));
  }
  return {};
}

base::Status StepView::check_columns() {
  std::fill_n(columns_seen_.data(), sequence_count_, 0);
  one_column_each_ = true;
  for (size_t c = 0; c < column_count_; c++) {
    const Column& column = columns_[c];
    if (column.token < 0 || column.token >= shape_.vocabulary || column.position < 0 ||
        column.position >= shape_.context || column.sequence < 0 ||
        static_cast<size_t>(column.sequence) >= sequence_count_) {
      return invalid(base::cat("column ", c, ": token ", column.token, ", sequence ",
                               column.sequence, ", position ", column.position,
                               " are not all in range"));
    }
    if (static_cast<size_t>(column.position / base::kKvBlockPositions) >=
        blocks(column.sequence).size()) {
      return invalid(base::cat("column ", c, ": no KV block for position ", column.position));
    }
    if (shape_.kv_near_count > 0) RETURN_IF_ERROR(check_near(column));
    if (++columns_seen_[static_cast<size_t>(column.sequence)] > 1) one_column_each_ = false;
    if (column.wants_logits) wanted_[wanted_count_++] = static_cast<int32_t>(c);
  }
  if (wanted_count_ > static_cast<size_t>(shape_.logit_columns_max)) {
    return invalid(base::cat(wanted_count_, " columns want logits, at most ",
                             shape_.logit_columns_max, " may"));
  }
  return {};
}

}  // namespace engine
