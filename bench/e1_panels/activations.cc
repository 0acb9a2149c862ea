#include "bench/e1_panels/activations.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace e1 {

namespace {

float largest(std::span<const float> x) {
  float a = 0;
  for (const float v : x) a = std::max(a, std::fabs(v));
  return a > 1e-30f ? a : 0;
}

/// 32 elements in steps of scale * 2^shift; `inverse` is 1 / scale for shift 3.
void quantise_sub_block(std::span<const float> x, int j, uint32_t shift, float inverse,
                        Tile<1>& block) {
  int8_t q[32];
  int32_t sum = 0;
  const float factor = static_cast<float>(1u << (3 - shift));
  for (size_t i = 0; i < 32; ++i) {
    q[i] = static_cast<int8_t>(std::nearbyint(x[i] * factor * inverse));
    sum += q[i];
  }
  std::memcpy(block.x[8 * j], q, 32);
  block.start[j][0] = -128 * sum;
  block.shift[j][0] = shift;
  const int pair = j / 4 * 2 + j % 2;
  const uint32_t half = static_cast<uint16_t>(sum * (1 << shift));
  block.sums[pair][0] |= j / 2 % 2 ? half << 16 : half;
  block.scaled_sum[j][0] = block.scale[j][0] * static_cast<float>(sum);
}

}  // namespace

const char* kind_name(Kind kind) {
  return kind == Kind::kA32 ? "a32" : kind == Kind::kA256 ? "a256" : "a256s";
}

Tile<1> quantise(std::span<const float, 256> x, Kind kind) {
  Tile<1> block = {};
  const float top = largest(x);
  for (int j = 0; j < 8; ++j) {
    const auto part = x.subspan(static_cast<size_t>(32 * j), 32);
    const float a = kind == Kind::kA32 ? largest(part) : top;
    uint32_t shift = kind == Kind::kA256s ? 3 : 0;
    const float own = largest(part);
    while (shift > 0 && own * static_cast<float>(1u << (4 - shift)) <= top) --shift;
    block.scale[j][0] = a / 127 * (kind == Kind::kA256s ? 0.125f : 1.0f);
    // factor of shift 0 is 8: taken back here where there is no shift.
    const float unit = kind == Kind::kA256s ? 1.0f : 0.125f;
    quantise_sub_block(part, j, shift, a > 0 ? 127 / a * unit : 0, block);
  }
  return block;
}

double value(const Tile<1>& block, int i) {
  int8_t q;
  std::memcpy(&q, reinterpret_cast<const char*>(block.x) + i, 1);
  return std::ldexp(static_cast<double>(q), static_cast<int>(block.shift[i / 32][0])) *
         static_cast<double>(block.scale[i / 32][0]);
}

RowBlock row_block(const Tile<1>& block) {
  RowBlock row = {};
  std::memcpy(row.x, block.x, sizeof row.x);
  for (int i = 0; i < 64; ++i) row.shift[i] = block.shift[i / 8][0];
  for (int j = 0; j < 8; ++j) row.sums[j] = block.start[j][0] / -128 * (1 << block.shift[j][0]);
  row.scale = block.scale[0][0];
  return row;
}

Columns::Columns(const std::vector<std::vector<float>>& x, Kind kind, int tile_columns) {
  const size_t blocks = x[0].size() / 256;
  const size_t c_count = static_cast<size_t>(tile_columns);
  blocks_.resize(x.size() * blocks);
  row_blocks_.resize(x.size() * blocks);
  tiles_.resize(x.size() * blocks * kTileWords);
  for (size_t column = 0; column < x.size(); ++column) {
    pointers_.push_back(&blocks_[column * blocks]);
    row_pointers_.push_back(&row_blocks_[column * blocks]);
    for (size_t b = 0; b < blocks; ++b) {
      Tile<1>& block = blocks_[column * blocks + b];
      block = quantise(std::span(x[column]).subspan(b * 256).first<256>(), kind);
      row_blocks_[column * blocks + b] = row_block(block);
      uint32_t words[kTileWords];
      std::memcpy(words, &block, sizeof words);
      uint32_t* tile = &tiles_[(column / c_count * blocks + b) * kTileWords * c_count];
      for (size_t w = 0; w < kTileWords; ++w) tile[w * c_count + column % c_count] = words[w];
    }
  }
}

}  // namespace e1
