// IQ3_S without panels: GGUF rows as they are, lanes along k, integer sums of a block added across
// lanes at its end. Table look-ups want the codes of one row side by side.
//
// Block of 256 (110 bytes): float16 d, codes[64] with their ninth bits in [8], signs[32],
// scales[4]: w = d * (1 + 2 s) * ±(2 level + 1). A block is first spelled out as bytes 15 + w / (d
// (1 + 2 s)), once for all columns; 15 * x is taken off again through the sums of 32.
//
// Bounds: 30 * 127 * 31 * 2^3 * 256 < 2^31.
#pragma once

#include <cstring>

#include "bench/e1_panels/table.h"

namespace e1 {

template <class V>
struct RowsIq3S {
  static constexpr int64_t kBlockBytes = 110;

  static void multiply(const Job& job) {
    const Codebook& book = codebook();
    const int64_t blocks = job.k / 256, rows = job.panel_count * kernels::kPanelRows;
    for (int64_t row = 0; row < rows; ++row) {
      float sums[64];
      for (float& sum : sums) sum = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        Spelled spelled;
        spell_out(job.panels + (row * blocks + b) * kBlockBytes, book, spelled);
        for (int c = 0; c < job.column_count; ++c) {
          const RowBlock& x = job.rows[c][b];
          const float dot = static_cast<float>(dot_block(spelled, x));
          sums[c] = __builtin_fmaf(x.scale * spelled.d, dot, sums[c]);
        }
      }
      for (int c = 0; c < job.column_count; ++c) job.y[c * rows + row] = sums[c];
    }
  }

 private:
  struct alignas(64) Spelled {
    uint64_t codes[32];   // bytes 0 … 30
    uint32_t scales[64];  // per lane of four weights
    float d;
  };

  static uint64_t byte(const std::byte* p) { return static_cast<uint64_t>(*p); }

  static void spell_out(const std::byte* block, const Codebook& book, Spelled& out) {
    uint16_t halves[V::kLanes] = {};
    float d[V::kLanes];
    std::memcpy(halves, block, 2);
    V::store_f32(d, V::load_f16(halves));
    out.d = d[0];
    for (int i = 0; i < 32; ++i) {
      const uint64_t ninth = byte(block + 66 + i / 4) >> (2 * (i % 4));
      const uint64_t low = book.magnitudes[byte(block + 2 + 2 * i) | (ninth & 1) << 8];
      const uint64_t high = book.magnitudes[byte(block + 3 + 2 * i) | (ninth & 2) << 7];
      const uint64_t both = low | high << 32;
      const uint64_t negative = both & book.signs[byte(block + 74 + i)];
      // 15 + w or 15 - w in every byte; no byte borrows from the next.
      out.codes[i] = 0x0f0f0f0f0f0f0f0fu + both - 2 * negative;
    }
    for (int j = 0; j < 8; ++j) {
      const uint32_t code = static_cast<uint32_t>(byte(block + 106 + j / 2) >> (4 * (j % 2))) & 15;
      for (int i = 0; i < 8; ++i) out.scales[8 * j + i] = 2 * code + 1;
    }
  }

  static int32_t dot_block(const Spelled& w, const RowBlock& x) {
    auto sum = V::set_i32(0);
#pragma GCC unroll 8
    for (int i = 0; i < 64; i += V::kLanes) {
      const auto codes = V::load(reinterpret_cast<const std::byte*>(w.codes) + 4 * i);
      const auto dot = V::dot_u4(V::zero_u4(), codes, V::load(x.x + i));
      const auto scaled = V::scale_u4(dot, V::scale_of(V::load(w.scales + i), 0));
      sum = V::add(sum, V::shl_lanes(scaled, V::load(x.shift + i)));
    }
    int32_t offset = 0;
    for (int j = 0; j < 8; ++j) offset += static_cast<int32_t>(w.scales[8 * j]) * x.sums[j];
    return V::reduce_add(sum) - 15 * offset;
  }
};

}  // namespace e1
