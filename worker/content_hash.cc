#include "worker/content_hash.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/formats.h"

namespace worker {

namespace {

int64_t blocks_of_matrix(const model::TensorInfo& tensor) {
  return (tensor.shape[1] + base::kSliceRows - 1) / base::kSliceRows;
}

}  // namespace

FileRows file_rows(const engine::WeightSlice& slice, int64_t matrix) {
  const int64_t number = slice.matrix_number(matrix);
  const int64_t first = slice.parts != nullptr ? 0 : number * slice.matrix_rows;
  // A transposed slice is made of other rows of the file than it has itself.
  const plan::Range taken = slice.transposed ? plan::Range{0, slice.row_length} : slice.rows;
  return {.tensor = slice.parts != nullptr ? slice.parts[number] : slice.tensor,
          .begin = first + taken.begin,
          .end = first + taken.end};
}

void add(shm::Hash128& sum, const shm::Hash128& term) {
  sum.low += term.low;
  sum.high += term.high + (sum.low < term.low ? 1 : 0);
}

ContentBlocks::ContentBlocks(const RankSlices& slices) : directory_(*slices.model.directory) {
  uint64_t blocks = 0;
  for (const model::TensorInfo& tensor : directory_.tensors) {
    first_block_.push_back(blocks);
    blocks += static_cast<uint64_t>(blocks_of_matrix(tensor) * tensor.shape[2] * tensor.shape[3]);
  }
  takers_.resize(directory_.tensors.size());
  // Which rows a rank takes does not depend on the arithmetic, so any table will do.
  const kernels::Ops& ops = *kernels::all_ops().front();
  for (int rank = 0; rank < slices.rank; rank++) {
    const plan::RankShare& share = slices.plan.ranks[static_cast<size_t>(rank)];
    add_takers(engine::map_weights(slices.model, share, ops), false);
  }
  add_takers(slices.map, true);
}

void ContentBlocks::add_takers(const engine::WeightMap& map, bool own) {
  for (size_t i = 0; i < map.slices.size(); i++) {
    const engine::WeightSlice& slice = map.slices[i];
    if (slice.rows.empty() || slice.matrix_count == 0) continue;
    const plan::Range rows = slice.transposed ? plan::Range{0, slice.row_length} : slice.rows;
    Taker taker{.slice = own ? static_cast<int64_t>(i) : -1,
                .matrix_begin = slice.matrix_begin,
                .matrix_end = slice.matrix_begin + slice.matrix_count,
                .listed = slice.listed,
                .matrix_rows = slice.matrix_rows,
                .rows = rows};
    if (slice.parts == nullptr) {
      takers_[index_of(*slice.tensor)].push_back(taker);
      continue;
    }
    taker.matrix_begin = 0;
    taker.matrix_end = 1;
    taker.listed.clear();
    for (int64_t m = 0; m < slice.matrix_count; m++) {
      takers_[index_of(*slice.parts[slice.matrix_number(m)])].push_back(taker);
    }
  }
}

size_t ContentBlocks::index_of(const model::TensorInfo& tensor) const {
  const auto index = static_cast<size_t>(&tensor - directory_.tensors.data());
  CHECK(index < directory_.tensors.size(), "tensor ", tensor.name, " of another directory");
  return index;
}

bool ContentBlocks::is_counted(size_t slice, size_t tensor, int64_t row) const {
  return std::ranges::none_of(takers_[tensor], [&](const Taker& taker) {
    const int64_t matrix = row / taker.matrix_rows;
    return taker.slice < static_cast<int64_t>(slice) && taker.takes(matrix) &&
           taker.rows.contains(row % taker.matrix_rows);
  });
}

// Calls visit(Block) for the counted blocks that begin in `rows`, in ascending order.
template <class Visit>
void ContentBlocks::visit_counted(size_t slice, const FileRows& rows, const Visit& visit) const {
  const size_t tensor = index_of(*rows.tensor);
  const int64_t matrix_rows = rows.tensor->shape[1];
  const int64_t matrix_blocks = blocks_of_matrix(*rows.tensor);
  for (int64_t row = rows.begin; row < rows.end;) {
    const int64_t matrix = row / matrix_rows, first = matrix * matrix_rows;
    const int64_t block = (row - first + base::kSliceRows - 1) / base::kSliceRows;
    const int64_t begin = first + block * base::kSliceRows;
    if (block == matrix_blocks || begin >= rows.end) {
      row = first + matrix_rows;  // only the tail of a block is left of this matrix
      continue;
    }
    const int64_t end = std::min(begin + base::kSliceRows, first + matrix_rows);
    if (is_counted(slice, tensor, begin)) {
      const auto number = static_cast<uint64_t>(matrix * matrix_blocks + block);
      visit(Block{.number = first_block_[tensor] + number, .begin = begin, .end = end});
    }
    row = end;
  }
}

int64_t ContentBlocks::read_end(size_t slice, const FileRows& rows) const {
  int64_t end = rows.end;
  visit_counted(slice, rows, [&](const Block& block) { end = std::max(end, block.end); });
  return end;
}

bool ContentBlocks::counts_any(size_t slice, const FileRows& rows) const {
  bool any = false;
  visit_counted(slice, rows, [&](const Block&) { any = true; });
  return any;
}

shm::Hash128 ContentBlocks::sum(size_t slice, const FileRows& rows, const std::byte* bytes) const {
  const int64_t row_bytes = kernels::row_bytes(rows.tensor->type, rows.tensor->row_length());
  shm::Hash128 sum;
  visit_counted(slice, rows, [&](const Block& block) {
    const std::byte* begin = bytes + (block.begin - rows.begin) * row_bytes;
    const auto size = static_cast<size_t>((block.end - block.begin) * row_bytes);
    const shm::Hash128 hash = shm::hash128({begin, size});
    const uint64_t numbered[3] = {block.number, hash.low, hash.high};
    add(sum, shm::hash128(std::as_bytes(std::span(numbered))));
  });
  return sum;
}

}  // namespace worker
