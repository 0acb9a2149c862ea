// The content hash of a model: what its tensors hold, whatever the file is called and however the
// model is split.
//
//   content = sum modulo 2^128, over all blocks of the tensors that the model uses, of
//             XXH3-128(number of the block, XXH3-128(bytes of the block in the file))
//
// A block is kSliceRows rows of a matrix [shape[1] rows] of a tensor, the last one of a matrix may
// have fewer; blocks are numbered through all tensors in the order of the directory. A sum knows no
// order, so threads and ranks add what they read, and the sum over the ranks is the same for every
// plan. Each block is counted once: by the first rank that holds its first row, in the first of its
// slices that does. Shares are cut at multiples of kSliceRows almost everywhere; where they are
// not, whoever counts a block reads the rest of it too.
// Thread rule: const after construction, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/weights.h"
#include "model/model.h"
#include "plan/plan.h"
#include "shm/checksum.h"

namespace worker {

/// What one rank loads. Borrows everything.
struct RankSlices {
  const model::Model& model;
  const plan::Plan& plan;
  int rank;
  const engine::WeightMap& map;  // map_weights() of the rank's share
};

/// Some rows of a tensor as they lie in the file.
struct FileRows {
  const model::TensorInfo* tensor = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

/// What matrix `matrix` of a slice, counted from the slice's first, is made of.
FileRows file_rows(const engine::WeightSlice& slice, int64_t matrix);

/// sum += term, modulo 2^128.
void add(shm::Hash128& sum, const shm::Hash128& term);

/// Which blocks a rank counts.
class ContentBlocks {
 public:
  /// The model and its directory must outlive this.
  explicit ContentBlocks(const RankSlices& slices);

  /// Where one has to read to for sum() of the same rows; at least their end.
  int64_t read_end(size_t slice, const FileRows& rows) const;
  /// Whether sum() of these rows would add anything.
  bool counts_any(size_t slice, const FileRows& rows) const;
  /// The terms of the blocks that begin in these rows of slice number `slice` and are counted
  /// there. `bytes` are the file's from rows.begin up to read_end().
  shm::Hash128 sum(size_t slice, const FileRows& rows, const std::byte* bytes) const;

 private:
  // The rows of a tensor that a slice takes. A rank before ours comes before all of our slices.
  struct Taker {
    int64_t slice;  // -1: of an earlier rank
    int64_t matrix_begin, matrix_end;
    std::vector<int32_t> listed;  // instead of these, if not empty
    int64_t matrix_rows;
    plan::Range rows;
    bool takes(int64_t matrix) const {
      if (listed.empty()) return matrix >= matrix_begin && matrix < matrix_end;
      return std::binary_search(listed.begin(), listed.end(), matrix);
    }
  };
  struct Block {
    uint64_t number;
    int64_t begin, end;  // rows of the tensor
  };
  void add_takers(const engine::WeightMap& map, bool own);
  size_t index_of(const model::TensorInfo& tensor) const;
  bool is_counted(size_t slice, size_t tensor, int64_t row) const;
  template <class Visit>
  void visit_counted(size_t slice, const FileRows& rows, const Visit& visit) const;

  const model::Directory& directory_;
  std::vector<uint64_t> first_block_;       // [tensors]
  std::vector<std::vector<Taker>> takers_;  // [tensors]
};

}  // namespace worker
