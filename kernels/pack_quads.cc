#include "kernels/pack_quads.h"

namespace kernels {

namespace {

using Halves = uint16_t __attribute__((vector_size(16)));

/// Four weights of four bytes of rows r … r + 3.
void quad_of_words(const std::byte* row, size_t stride, size_t r, std::byte* panel) {
  const Quad quad{{row, row + stride, row + 2 * stride, row + 3 * stride}};
  Words words[4];
  load_words(quad, 0, words);
  store_words(words, panel + 4 * r);
}

/// Eight weights of two bytes.
void quad_of_halves(const std::byte* row, size_t stride, size_t r, std::byte* panel) {
  Halves in[4];
  for (size_t i = 0; i < 4; ++i) in[i] = load_as<Halves>(row + i * stride);
  const auto pair = [](Halves a, Halves b, bool high) {
    return high ? Words(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15))
                : Words(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  };
  for (size_t half = 0; half < 2; ++half) {
    const Words a = pair(in[0], in[1], half == 1), b = pair(in[2], in[3], half == 1);
    const Words k01 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Words k23 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    std::byte* out = panel + 2 * r + 4 * 32 * half;
    std::memcpy(out, &k01, 8);
    std::memcpy(out + 32, reinterpret_cast<const std::byte*>(&k01) + 8, 8);
    std::memcpy(out + 64, &k23, 8);
    std::memcpy(out + 96, reinterpret_cast<const std::byte*>(&k23) + 8, 8);
  }
}

}  // namespace

void pack_elements(const std::byte* rows, int row_count, int64_t k, size_t bytes,
                   std::byte* panel) {
  const auto n = static_cast<size_t>(k), count = static_cast<size_t>(row_count);
  const size_t quads = count / 4 * 4, step = 16 / bytes, vectors = n / step * step;
  for (size_t i = 0; i < vectors; i += step) {
    for (size_t r = 0; r < quads; r += 4) {
      const std::byte* row = rows + (r * n + i) * bytes;
      std::byte* out = panel + i * kPanelRows * bytes;
      bytes == 4 ? quad_of_words(row, n * bytes, r, out) : quad_of_halves(row, n * bytes, r, out);
    }
  }
  // The rest one by one: the last weights of the fours, then rows that are no four.
  for (size_t r = 0; r < count; ++r) {
    for (size_t i = r < quads ? vectors : 0; i < n; ++i) {
      std::memcpy(panel + (i * kPanelRows + r) * bytes, rows + (r * n + i) * bytes, bytes);
    }
  }
}

}  // namespace kernels
