// Activations of the experiment: three formats, and two ways to lay columns out.
//
//   kA32     int8 with one float scale per 32
//   kA256    int8 with one float scale per 256
//   kA256s   the same and a shift of 0 … 3 per 32 (the format of the program)
//
// A tile holds 256 elements of C columns side by side; Tile<1> of each column, reached through a
// pointer per column, is the other way. All formats have the same fields, so sizes do not differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace e1 {

enum class Kind { kA32, kA256, kA256s };
const char* kind_name(Kind kind);

template <int C>
struct Tile {
  uint32_t x[64][C];    // four int8 each
  uint32_t sums[4][C];  // int16 pairs of shifted sums of 32: (0,2) (1,3) (4,6) (5,7)
  int32_t start[8][C];  // -128 * sum of 32
  uint32_t shift[8][C];
  float scale[8][C];       // kA256, kA256s: all equal
  float scaled_sum[8][C];  // scale * sum of 32
};
inline constexpr int kTileWords = 100;
static_assert(sizeof(Tile<1>) == 4 * kTileWords);

/// One block of 256 of one column.
Tile<1> quantise(std::span<const float, 256> x, Kind kind);
/// What the elements of a block stand for.
double value(const Tile<1>& block, int i);

/// A block for weights that lie row by row: lane i holds elements 4 i …, with its shift beside it.
struct alignas(64) RowBlock {
  uint32_t x[64];
  uint32_t shift[64];
  int32_t sums[8];  // of 32, shifted
  float scale;
};
RowBlock row_block(const Tile<1>& block);

/// Columns of k elements, tiles of C side by side: [columns / C][k / 256] tiles, and each column on
/// its own. k is a multiple of 256, the number of columns one of C.
class Columns {
 public:
  Columns(const std::vector<std::vector<float>>& x, Kind kind, int tile_columns);

  const uint32_t* tiles() const { return tiles_.data(); }
  const Tile<1>* const* pointers() const { return pointers_.data(); }
  const RowBlock* const* rows() const { return row_pointers_.data(); }
  const Tile<1>& block(int column, int64_t b) const {
    return pointers_[static_cast<size_t>(column)][b];
  }

 private:
  std::vector<uint32_t> tiles_;
  std::vector<Tile<1>> blocks_;
  std::vector<RowBlock> row_blocks_;
  std::vector<const Tile<1>*> pointers_;
  std::vector<const RowBlock*> row_pointers_;
};

}  // namespace e1
