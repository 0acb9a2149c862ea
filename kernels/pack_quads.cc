#include "kernels/pack_quads.h"

#include <cstring>

#include "kernels/panels.h"

namespace kernels {

namespace {

// Vectors of the compiler, not of an instruction set: 16 bytes are there on every x86-64. A word is
// four bytes of a row; the bytes of a word never mix.
using Words = uint32_t __attribute__((vector_size(16)));
using Halves = uint16_t __attribute__((vector_size(16)));

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void store(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

/// Word w of row i goes to lane i of out[w].
void transpose(const Words in[4], Words out[4]) {
  const Words low01 = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Words low23 = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Words high01 = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Words high23 = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/// Four words of each of four rows to the same lanes of four neighbouring vectors of a panel.
void store_words(const Words in[4], void* panel) {
  Words out[4];
  transpose(in, out);
  for (size_t w = 0; w < 4; ++w) store(static_cast<std::byte*>(panel) + 64 * w, out[w]);
}

// Each of the following packs one block of k of rows r … r + 3, the first of which begins at `row`.

/// Four weights of four bytes.
void quad_f32(const std::byte* row, size_t stride, int r, std::byte* panel) {
  Words words[4];
  for (size_t i = 0; i < 4; ++i) words[i] = load<Words>(row + i * stride);
  store_words(words, panel + 4 * r);
}

/// Eight weights of two bytes.
void quad_f16(const std::byte* row, size_t stride, int r, std::byte* panel) {
  Halves in[4];
  for (size_t i = 0; i < 4; ++i) in[i] = load<Halves>(row + i * stride);
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

/// Two bytes of each row from `offset` of its block on.
void quad_scales(const std::byte* row, size_t stride, size_t offset, uint16_t* out) {
  for (size_t i = 0; i < 4; ++i) out[i] = load<uint16_t>(row + i * stride + offset);
}

void quad_q8_0(const std::byte* row, size_t stride, int r, size_t half, Q8_0Group* group) {
  // The second half of a last group may lie behind the panel, so no member of it is named.
  auto* const base = reinterpret_cast<std::byte*>(group);
  for (size_t i = 0; i < 4; ++i) {
    std::memcpy(base + (half * kPanelRows + static_cast<size_t>(r) + i) * 2, row + i * stride, 2);
  }
  std::byte* q = base + offsetof(Q8_0Group, q) + half * 512 + static_cast<size_t>(r) * 4;
  for (size_t part = 0; part < 2; ++part) {
    Words words[4];
    for (size_t i = 0; i < 4; ++i) {
      words[i] = load<Words>(row + i * stride + 2 + 16 * part) ^ 0x80808080u;
    }
    store_words(words, q + 256 * part);
  }
}

void quad_q4_k(const std::byte* row, size_t stride, int r, Q4_KBlock& block) {
  quad_scales(row, stride, 0, &block.d[r]);
  quad_scales(row, stride, 2, &block.dmin[r]);
  for (int i = 0; i < 4; ++i) {
    const std::byte* codes = row + static_cast<size_t>(i) * stride + 4;
    const auto scale = load<uint32_t>(codes), min = load<uint32_t>(codes + 4);
    const auto both = load<uint32_t>(codes + 8);
    const uint32_t scale4 = (both & 0x0f0f0f0fu) | (scale >> 6 & 0x03030303u) << 4;
    const uint32_t min4 = (both >> 4 & 0x0f0f0f0fu) | (min >> 6 & 0x03030303u) << 4;
    store(block.codes[0][r + i], (scale & 0x3f3f3f3fu) | (min4 & 0x03030303u) << 6);
    store(block.codes[1][r + i], scale4 | (min4 >> 2 & 0x03030303u) << 6);
    store(block.codes[2][r + i], (min & 0x3f3f3f3fu) | (min4 >> 4 & 0x03030303u) << 6);
  }
  for (size_t pair = 0; pair < 4; ++pair) {
    Words even[4], odd[4];
    for (size_t i = 0; i < 4; ++i) {
      const std::byte* codes = row + i * stride + 16 + 32 * pair;
      const auto first = load<Words>(codes), second = load<Words>(codes + 16);
      even[i] = (first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4;
      odd[i] = (first >> 4 & 0x0f0f0f0fu) | (second & 0xf0f0f0f0u);
    }
    store_words(even, block.q[2 * pair][0][r]);
    store_words(odd, block.q[2 * pair + 1][0][r]);
  }
}

void quad_q6_k(const std::byte* row, size_t stride, int r, Q6_KBlock& block) {
  quad_scales(row, stride, 208, &block.d[r]);
  Words scales[4];
  for (size_t i = 0; i < 4; ++i) scales[i] = load<Words>(row + i * stride + 192);
  store_words(scales, block.scales[0][r]);
  for (int sub = 0; sub < 16; ++sub) {
    const int n = 16 * (sub % 8);  // within 128 weights
    const std::byte* low = row + 64 * (sub / 8) + n % 64;
    const std::byte* high = row + 128 + 32 * (sub / 8) + n % 32;
    Words nibbles[4], pairs[4], low_of[4], high_of[4];
    for (size_t i = 0; i < 4; ++i) {
      nibbles[i] = load<Words>(low + i * stride) >> static_cast<uint32_t>(n / 64 * 4) & 0x0f0f0f0fu;
      pairs[i] = load<Words>(high + i * stride) >> static_cast<uint32_t>(n / 32 * 2) & 0x03030303u;
    }
    transpose(nibbles, low_of);
    transpose(pairs, high_of);
    store(block.codes[sub].low[0][r], low_of[0] | low_of[2] << 4);
    store(block.codes[sub].low[1][r], low_of[1] | low_of[3] << 4);
    store(block.codes[sub].high[r],
          high_of[0] | high_of[1] << 2 | high_of[2] << 4 | high_of[3] << 6);
  }
}

/// Weights that are left of elements of `bytes` each, from weight `begin` on.
void tail(const std::byte* rows, int count, int64_t k, int64_t begin, size_t bytes,
          std::byte* panel) {
  for (int64_t i = begin; i < k; ++i) {
    for (int r = 0; r < count; ++r) {
      std::memcpy(panel + static_cast<size_t>(i * kPanelRows + r) * bytes,
                  rows + static_cast<size_t>(r * k + i) * bytes, bytes);
    }
  }
}

}  // namespace

int pack_quads(Layout layout, const std::byte* rows, int row_count, int64_t k, std::byte* panel) {
  const int count = row_count / 4 * 4;
  // Blocks of k outside, so that whole cache lines are written; rows are `stride` apart.
  const auto each = [&](int64_t blocks, size_t block_bytes, size_t stride, const auto& quad) {
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* row = rows + static_cast<size_t>(b) * block_bytes;
      for (int r = 0; r < count; r += 4) {
        quad(row + static_cast<size_t>(r) * stride, stride, r, static_cast<size_t>(b));
      }
    }
  };
  const auto n = static_cast<size_t>(k);
  switch (layout) {
    case Layout::kF32:
      each(k / 4, 16, n * 4, [&](const std::byte* row, size_t stride, int r, size_t b) {
        quad_f32(row, stride, r, panel + b * 256);
      });
      tail(rows, count, k, k / 4 * 4, 4, panel);
      return count;
    case Layout::kF16:
    case Layout::kBF16:
      each(k / 8, 16, n * 2, [&](const std::byte* row, size_t stride, int r, size_t b) {
        quad_f16(row, stride, r, panel + b * 256);
      });
      tail(rows, count, k, k / 8 * 8, 2, panel);
      return count;
    case Layout::kQ8_0:
      each(k / 32, 34, n / 32 * 34, [&](const std::byte* row, size_t stride, int r, size_t b) {
        quad_q8_0(row, stride, r, b % 2, reinterpret_cast<Q8_0Group*>(panel) + b / 2);
      });
      return count;
    case Layout::kQ4_K:
      each(k / 256, 144, n / 256 * 144, [&](const std::byte* row, size_t stride, int r, size_t b) {
        quad_q4_k(row, stride, r, reinterpret_cast<Q4_KBlock*>(panel)[b]);
      });
      return count;
    case Layout::kQ6_K:
      each(k / 256, 210, n / 256 * 210, [&](const std::byte* row, size_t stride, int r, size_t b) {
        quad_q6_k(row, stride, r, reinterpret_cast<Q6_KBlock*>(panel)[b]);
      });
      return count;
    default: return 0;
  }
}

}  // namespace kernels
