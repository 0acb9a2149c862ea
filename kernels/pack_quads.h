// Packing, four rows at once: what the formats write their blocks with.
//
// Rows that are missing in a four are packed as blocks of zeros: every row takes the same way.
// Vectors are those of the compiler, not of an instruction set: 16 bytes are there on every x86-64.
// A word is four bytes of a row; the bytes of a word never mix unless said. Pure functions; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/ops.h"

namespace kernels {

using Words = uint32_t __attribute__((vector_size(16)));

/// The same block of four neighbouring rows, as it lies in the file.
struct Quad {
  const std::byte* row[4];
};

template <class T>
T load_as(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store_as(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

/// Word w of row i goes to lane i of out[w].
inline void transpose(const Words in[4], Words out[4]) {
  const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/// Words `offset` … `offset` + 12 of each row: word w of row i in lane i of out[w].
inline void load_words(const Quad& quad, size_t offset, Words out[4]) {
  Words in[4];
  for (size_t i = 0; i < 4; ++i) in[i] = load_as<Words>(quad.row[i] + offset);
  transpose(in, out);
}

/// One word of each row.
inline Words load_word(const Quad& quad, size_t offset) {
  return Words{load_as<uint32_t>(quad.row[0] + offset), load_as<uint32_t>(quad.row[1] + offset),
               load_as<uint32_t>(quad.row[2] + offset), load_as<uint32_t>(quad.row[3] + offset)};
}

/// Two bytes of each row.
inline void copy_halves(const Quad& quad, size_t offset, uint16_t* out) {
  for (size_t i = 0; i < 4; ++i) out[i] = load_as<uint16_t>(quad.row[i] + offset);
}

/// Four neighbouring vectors of a panel from `panel` on, which is the place of the first row.
inline void store_words(const Words words[4], std::byte* panel) {
  for (size_t w = 0; w < 4; ++w) store_as(panel + 64 * w, words[w]);
}

/// Packs rows of blocks: Format says which type they are of, and Format::pack(quad, b, r, panel)
/// writes block b of rows r … r + 3.
template <class Format>
void pack_blocks(const std::byte* rows, int row_count, int64_t k, std::byte* panel) {
  static constexpr std::byte kZeros[256] = {};
  const TypeInfo& info = type_info(Format::kType);
  const auto bytes = static_cast<size_t>(info.block_bytes);
  const auto blocks = static_cast<size_t>(k / info.block_weights);
  const auto count = static_cast<size_t>(row_count);
  const size_t stride = blocks * bytes, whole = count / 4 * 4;
  // Blocks of k outside, so that whole cache lines are written.
  for (size_t b = 0; b < blocks; ++b, rows += bytes) {
    const std::byte* row = rows;
    for (size_t r = 0; r < whole; r += 4, row += 4 * stride) {
      Format::pack({{row, row + stride, row + 2 * stride, row + 3 * stride}}, b, r, panel);
    }
    if (whole == count) continue;
    Quad rest{{row, kZeros, kZeros, kZeros}};
    for (size_t i = 1; i < count - whole; ++i) rest.row[i] = row + i * stride;
    Format::pack(rest, b, whole, panel);
  }
}

/// Packs rows of `bytes` (2 or 4) per weight.
void pack_elements(const std::byte* rows, int row_count, int64_t k, size_t bytes, std::byte* panel);

}  // namespace kernels
