// The driver of all panel products: panels, passes over columns, partial panels. A format says how
// one block of a panel meets a tile of columns; which tiles there are: tile.h.
//
// A format is a struct with
//   kBlock                 weights per row of one block
//   kFetches               how often block() calls args.fetch<C>()
//   offset(begin)          bytes from the start of a panel to the block of weight `begin`
//   Sum<V>                 the running sum of kLanes rows and one column
//   empty<V>()  total<V>(sum)   how it begins, and its value as F32 at the end
//   block<V, P, C>(args)   adds one block to the sums of P registers and C columns
//
// Order, hence bits: block after block, inside a block whatever the format fixes. Tiles, column
// counts and registers never meet in one lane, so they cannot change a bit. A panel block is used
// by all columns before the next one is touched: one stream of memory per thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/ops.h"
#include "kernels/tile.h"
#include "kernels/vocabulary.h"

namespace kernels {

/// Columns that share one pass over all panels: their activations stay in L2, their sums in L1.
inline constexpr int kPassColumns = 96;

/// One panel times at most kPassColumns columns.
template <class V, class Format>
void multiply_panel(const MatmulArgs& args, int64_t panel, int first, int columns) {
  typename Format::template Sum<V> sums[kPassColumns][kParts<V>];
  for (int c = 0; c < columns; ++c) {
    for (auto& sum : sums[c]) sum = Format::template empty<V>();
  }
  const std::byte* base =
      args.panels + static_cast<size_t>(panel) * panel_bytes(Format::kLayout, args.type, args.k);
  const std::byte* const* x = args.x + first;
  for (int64_t begin = 0; begin < args.k; begin += Format::kBlock) {
    const int64_t count = std::min<int64_t>(Format::kBlock, args.k - begin);
    const std::byte* block = base + Format::offset(begin);
    Fetch ahead = fetch_during<V, Format>(block, columns);
    for (int part = 0; part < kParts<V>; part += V::kTogether) {
      multiply_block<V, Format>({block, part, begin, count, x, sums, &ahead}, columns);
    }
  }
  const int64_t row = panel * kPanelRows;
  const size_t rows = static_cast<size_t>(std::min<int64_t>(kPanelRows, args.row_count - row));
  for (int c = 0; c < columns; ++c) {
    float values[kPanelRows];
    float* y = args.y[first + c] + row;
    float* to = rows == kPanelRows ? y : values;
    for (int part = 0; part < kParts<V>; ++part) {
      V::store_f32(to + part * V::kLanes, Format::template total<V>(sums[c][part]));
    }
    if (to == values) std::memcpy(y, values, rows * sizeof(float));
  }
}

template <class V, class Format>
void matmul(const MatmulArgs& args) {
  static_assert(Vocabulary<V>);
  const int64_t panels = (args.row_count + kPanelRows - 1) / kPanelRows;
  // Passes of about equal size, none of a few columns only.
  const int passes = (args.columns + kPassColumns - 1) / kPassColumns;
  const int together = passes <= 1 ? args.columns : ((args.columns - 1) / passes / 8 + 1) * 8;
  for (int first = 0; first < args.columns; first += together) {
    const int columns = std::min(together, args.columns - first);
    for (int64_t panel = 0; panel < panels; ++panel) {
      multiply_panel<V, Format>(args, panel, first, columns);
    }
  }
}

}  // namespace kernels
