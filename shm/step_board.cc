#include "shm/step_board.h"

#include <cstring>
#include <new>

#include "base/limits.h"

namespace shm {

namespace {

/// A record as it lies in its slot: its length in front, on a line of its own.
constexpr size_t kRecordOffset = 64;

size_t stride_of(const StepBoardShape& shape) {
  return (kRecordOffset + shape.record_bytes_max + 127) / 128 * 128;
}

uint32_t number_of(uint64_t sequence) {
  return static_cast<uint32_t>(sequence + 1);
}

}  // namespace

/// Counters at the front; `read[r]` is raised by rank r only.
struct StepBoard::Lines {
  Counter published;
  Counter read[base::kRanksMax];
};

size_t StepBoard::bytes(const StepBoardShape& shape) {
  return sizeof(Lines) + 2 * stride_of(shape);
}

void StepBoard::format(std::byte* board, const StepBoardShape& shape, uint64_t first_sequence) {
  auto* lines = new (board) Lines{};
  const uint32_t before = number_of(first_sequence - 1);
  lines->published.value.store(before, std::memory_order_relaxed);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    lines->read[rank].value.store(before, std::memory_order_relaxed);
  }
}

StepBoard::StepBoard(Options options)
    : shape_(options.shape),
      rank_(options.rank),
      board_(options.board),
      signals_(options.signals),
      wait_(options.wait) {
  CHECK(shape_.ranks >= 1 && shape_.ranks <= base::kRanksMax, shape_.ranks, " ranks");
  CHECK(rank_ >= 0 && rank_ < shape_.ranks, "rank ", rank_, " of ", shape_.ranks);
}

StepBoard::Lines& StepBoard::lines() const {
  return *std::launder(reinterpret_cast<Lines*>(board_));
}

std::byte* StepBoard::slot(uint64_t sequence) const {
  return board_ + sizeof(Lines) + (sequence & 1) * stride_of(shape_);
}

base::Wait StepBoard::publish(uint64_t sequence, std::span<const std::byte> record) {
  CHECK(rank_ == 0, "rank ", rank_, " is no leader");
  CHECK(record.size() <= shape_.record_bytes_max, "a record of ", record.size(), " bytes, at most ",
        shape_.record_bytes_max);
  Lines& board = lines();
  CHECK(board.published.value.load(std::memory_order_relaxed) == number_of(sequence - 1), "record ",
        sequence, " is not the next");
  WaitBudget budget(wait_);
  for (int rank = 1; rank < shape_.ranks; ++rank) {
    const base::Wait wait = await(board.read[rank], number_of(sequence - 2), signals_, budget);
    if (wait != base::Wait::kOk) return wait;
  }
  const base::Wait state = signals_.state();
  if (state != base::Wait::kOk) return state;
  const uint64_t length = record.size();
  std::memcpy(slot(sequence), &length, sizeof length);
  if (length > 0) std::memcpy(slot(sequence) + kRecordOffset, record.data(), length);
  raise(board.published, number_of(sequence));
  return base::Wait::kOk;
}

base::Wait StepBoard::read(uint64_t sequence, base::TimeNs slice_ns,
                           std::vector<std::byte>& record) {
  WaitOptions options = wait_;
  options.timeout_ns = slice_ns;
  options.spin_ns = 0;  // there may be nothing to do for hours
  WaitBudget budget(options);
  base::Wait wait = signals_.state();
  if (wait == base::Wait::kOk) {
    wait = await(lines().published, number_of(sequence), signals_, budget);
  }
  // A slice shorter than the lifelines' must not hide a loss for ever.
  if (wait == base::Wait::kTimeout && signals_.examine() != base::Wait::kOk) {
    return signals_.state();
  }
  if (wait != base::Wait::kOk) return wait;
  uint64_t length;
  std::memcpy(&length, slot(sequence), sizeof length);
  if (length > shape_.record_bytes_max) {  // not our leader's doing: its memory is damaged
    signals_.abort();
    return base::Wait::kAborted;
  }
  record.resize(length);
  if (length > 0) std::memcpy(record.data(), slot(sequence) + kRecordOffset, length);
  raise(lines().read[rank_], number_of(sequence));
  return base::Wait::kOk;
}

void StepBoard::abort() {
  signals_.abort();
  nudge(lines().published);
  for (int rank = 0; rank < shape_.ranks; ++rank) nudge(lines().read[rank]);
}

}  // namespace shm
