// One block of a panel times all columns, tile by tile, and what is fetched from memory meanwhile.
//
// A format's block<V, P, C>(args) computes a tile: P registers of rows, C columns. Which tiles, and
// what was fetched when, cannot change a bit. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"
#include "kernels/vocabulary.h"

namespace kernels {

/// From so many columns on a block is computed with for longer than it takes to read: the next
/// ones are fetched into L2 meanwhile, a few lines at a time (all at once, the core waits for them:
/// 8 columns of Q8_0 from memory 119 instead of 169 GMAC/s, 64 columns 161 instead of 177). Below,
/// the hardware's own streams are faster without (1 column: up to 15 %).
inline constexpr int kPrefetchColumns = 5;
inline constexpr size_t kPrefetchBlocks = 4;

/// The lines of the panel that are still to be fetched during a block.
struct Fetch {
  const std::byte* next;
  const std::byte* end;
  size_t step;  // bytes at a time
};

template <class V>
inline constexpr int kParts = kPanelRows / V::kLanes;

/// What a format's block() gets.
template <class V, class Sum>
struct BlockArgs {
  const std::byte* block;     // of the panel
  int part;                   // first of the P registers
  int64_t begin;              // weight index of the block
  int64_t count;              // weights of the block, 1 … kBlock
  const std::byte* const* x;  // [C] columns
  Sum (*sums)[kParts<V>];     // [C]
  Fetch* ahead;

  /// Asks for the next lines, in a tile of C columns; behind the end of all panels nothing happens.
  /// A tile of one column is all there is, so nothing was planned.
  template <int C>
  [[gnu::always_inline]] void fetch() const {
    if constexpr (C == 1) return;
    constexpr int kIntoL2 = 2;
    const std::byte* stop = std::min(ahead->next + ahead->step, ahead->end);
    for (; ahead->next < stop; ahead->next += 64) __builtin_prefetch(ahead->next, 0, kIntoL2);
  }

  /// Byte offset of register p in a vector of the panel with `bytes` bytes per row.
  size_t lane_bytes(int p, size_t bytes) const {
    return static_cast<size_t>((part + p) * V::kLanes) * bytes;
  }
};

/// Of so many columns the next tile takes kColumns, or what is left, or half of what is left: tiles
/// of one to three columns take nearly as long as those of four or five.
template <class V>
constexpr int tile_columns(int left) {
  if (left <= V::kColumns) return left;
  return left < V::kColumns + V::kColumns / 2 ? (left + 1) / 2 : V::kColumns;
}

/// One block of a panel times a tile of at most C columns.
template <class V, class Format, int C>
[[gnu::always_inline]] inline void multiply_tile(
    const BlockArgs<V, typename Format::template Sum<V>>& tile, int columns) {
  if (columns == C) {
    Format::template block<V, V::kTogether, C>(tile);
  } else if constexpr (C > 1) {
    multiply_tile<V, Format, C - 1>(tile, columns);
  }
}

/// One block of a panel times all columns.
template <class V, class Format>
[[gnu::always_inline]] inline void multiply_block(
    BlockArgs<V, typename Format::template Sum<V>> tile, int columns) {
  while (columns > 0) {
    const int taken = tile_columns<V>(columns);
    multiply_tile<V, Format, V::kColumns>(tile, taken);
    tile.x += taken;
    tile.sums += taken;
    columns -= taken;
  }
}

/// What is to be fetched during `block`, in as many steps as its tiles ask for.
template <class V, class Format>
[[gnu::always_inline]] inline Fetch fetch_during(const std::byte* block, int columns) {
  constexpr size_t kBytes = Format::offset(Format::kBlock);
  constexpr int kTileFetches = Format::kFetches * kParts<V> / V::kTogether;
  const std::byte* next = block + kPrefetchBlocks * kBytes;
  if (columns < kPrefetchColumns) return {next, next, 0};
  const auto steps = static_cast<size_t>((columns + V::kColumns - 1) / V::kColumns * kTileFetches);
  return {next, next + kBytes, (kBytes / 64 + steps - 1) / steps * 64};
}

}  // namespace kernels
