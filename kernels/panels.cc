#include "kernels/panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/pack_quads.h"

namespace kernels {

namespace {

uint16_t load_u16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

/// Four bytes at a time; lanes of a word never mix below, so byte order does not matter.
uint32_t load_u32(const std::byte* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void store_u32(void* p, uint32_t v) {
  std::memcpy(p, &v, sizeof v);
}

size_t round_up(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Rows `first` to `last` of [k][16] elements of `bytes` each.
void pack_elements(const std::byte* rows, size_t first, size_t last, int64_t k, size_t bytes,
                   std::byte* panel) {
  const auto n = static_cast<size_t>(k);
  for (size_t r = first; r < last; ++r) {
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(panel + (i * kPanelRows + r) * bytes, rows + (r * n + i) * bytes, bytes);
    }
  }
}

/// Row r of a Q8_0 panel. File block: float16 d, int8 q[32].
void pack_q8_0(const std::byte* row, int r, int64_t k, std::byte* panel) {
  for (int64_t b = 0; b < k / 32; ++b, row += 34) {
    std::byte* group = panel + static_cast<size_t>(b / 2) * sizeof(Q8_0Group);
    const size_t half = static_cast<size_t>(b % 2);
    std::memcpy(group + offsetof(Q8_0Group, d) + (half * kPanelRows + static_cast<size_t>(r)) * 2,
                row, 2);
    std::byte* q = group + offsetof(Q8_0Group, q) + half * 512 + static_cast<size_t>(r) * 4;
    for (size_t v = 0; v < 8; ++v) store_u32(q + 64 * v, load_u32(row + 2 + 4 * v) ^ 0x80808080u);
  }
}

/// Row r of a Q4_K panel. File block: float16 d, dmin; 12 bytes of six-bit codes, of which bytes
/// 0-3 hold scales 0-3 and bytes 4-7 mins 0-3 in their low six bits, and scales and mins 4-7 are
/// split over nibbles of bytes 8-11 and the top bits of bytes 0-7; nibbles q[128], 64 weights per
/// 32 bytes.
void pack_q4_k(const std::byte* row, int r, int64_t k, std::byte* panel) {
  for (int64_t b = 0; b < k / 256; ++b, row += 144, panel += sizeof(Q4_KBlock)) {
    Q4_KBlock& block = *reinterpret_cast<Q4_KBlock*>(panel);
    const auto byte = [row](int i) { return static_cast<unsigned>(row[i]); };
    block.d[r] = load_u16(row);
    block.dmin[r] = load_u16(row + 2);
    for (int j = 0; j < 4; ++j) {
      const unsigned scale = byte(4 + j), min = byte(8 + j), both = byte(12 + j);
      const unsigned scale4 = (both & 15u) | (scale >> 6) << 4;
      const unsigned min4 = both >> 4 | (min >> 6) << 4;
      block.codes[0][r][j] = static_cast<uint8_t>((scale & 63u) | (min4 & 3u) << 6);
      block.codes[1][r][j] = static_cast<uint8_t>(scale4 | (min4 >> 2 & 3u) << 6);
      block.codes[2][r][j] = static_cast<uint8_t>((min & 63u) | (min4 >> 4) << 6);
    }
    for (int j = 0; j < 8; ++j) {
      const std::byte* codes = row + 16 + j / 2 * 32;
      const int shift = j % 2 * 4;
      for (int v = 0; v < 4; ++v) {
        const uint32_t low = load_u32(codes + 4 * v) >> shift & 0x0f0f0f0fu;
        const uint32_t high = load_u32(codes + 16 + 4 * v) >> shift & 0x0f0f0f0fu;
        store_u32(block.q[j][v][r], low | high << 4);
      }
    }
  }
}

/// Row r of a Q6_K panel. File block: low nibbles ql[128], high bits qh[64], int8 scales[16],
/// float16 d. 128 weights take 64 bytes of ql (weights 64 and more in the high nibbles) and 32 of
/// qh (two bits for each 32 weights).
void pack_q6_k(const std::byte* row, int r, int64_t k, std::byte* panel) {
  for (int64_t b = 0; b < k / 256; ++b, row += 210, panel += sizeof(Q6_KBlock)) {
    Q6_KBlock& block = *reinterpret_cast<Q6_KBlock*>(panel);
    block.d[r] = load_u16(row + 208);
    for (int sub = 0; sub < 16; ++sub) {
      block.scales[sub / 4][r][sub % 4] = static_cast<int8_t>(static_cast<uint8_t>(row[192 + sub]));
      const int n = 16 * (sub % 8);  // within 128 weights
      const std::byte* low = row + 64 * (sub / 8) + n % 64;
      const std::byte* high = row + 128 + 32 * (sub / 8) + n % 32;
      uint32_t nibbles[4], pairs = 0;
      for (int v = 0; v < 4; ++v) {
        nibbles[v] = load_u32(low + 4 * v) >> (n / 64 * 4) & 0x0f0f0f0fu;
        pairs |= (load_u32(high + 4 * v) >> (n / 32 * 2) & 0x03030303u) << 2 * v;
      }
      store_u32(block.codes[sub].low[0][r], nibbles[0] | nibbles[2] << 4);
      store_u32(block.codes[sub].low[1][r], nibbles[1] | nibbles[3] << 4);
      store_u32(block.codes[sub].high[r], pairs);
    }
  }
}

/// Row r of an MXFP4 panel. File block: exponent e, sixteen bytes of two codes each.
void pack_mxfp4(const std::byte* row, int r, int64_t k, std::byte* panel) {
  for (int64_t b = 0; b < k / 32; ++b, row += 17) {
    MXFP4Group& group = *reinterpret_cast<MXFP4Group*>(panel + b / 2 * int64_t{sizeof(MXFP4Group)});
    const auto exponent = static_cast<unsigned>(row[0]);
    // The two smallest halved scales are subnormal.
    group.d[b % 2][r] =
        static_cast<uint16_t>(exponent < 2 ? 0x20u << exponent : (exponent - 1) << 7);
    for (int v = 0; v < 4; ++v) store_u32(group.q[b % 2][v][r], load_u32(row + 1 + 4 * v));
  }
}

Layout fast_layout(TensorType type) {
  switch (type) {
    case TensorType::kF32: return Layout::kF32;
    case TensorType::kF16: return Layout::kF16;
    case TensorType::kBF16: return Layout::kBF16;
    case TensorType::kQ8_0: return Layout::kQ8_0;
    case TensorType::kQ4_K: return Layout::kQ4_K;
    case TensorType::kQ6_K: return Layout::kQ6_K;
    case TensorType::kMXFP4: return Layout::kMXFP4;
    default: return Layout::kRows;
  }
}

/// Whether a panel may have bytes that belong to no weight.
bool has_padding(Layout layout, int64_t k) {
  switch (layout) {
    case Layout::kF32:
    case Layout::kQ4_K: return false;
    case Layout::kF16:
    case Layout::kBF16: return k % 2 != 0;
    case Layout::kQ8_0: return k % 64 != 0;
    default: return true;
  }
}

}  // namespace

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::kRows: return "rows";
    case Layout::kF32: return "f32";
    case Layout::kF16: return "f16";
    case Layout::kBF16: return "bf16";
    case Layout::kQ8_0: return "q8_0";
    case Layout::kQ4_K: return "q4_k";
    case Layout::kQ6_K: return "q6_k";
    case Layout::kMXFP4: return "mxfp4";
  }
  return "unknown";
}

Layout layout_for(TensorType type, const Ops& ops) {
  const Layout layout = fast_layout(type);
  return ops.matmul[static_cast<size_t>(layout)] ? layout : Layout::kRows;
}

size_t panel_bytes(Layout layout, TensorType type, int64_t k) {
  const size_t n = static_cast<size_t>(k);
  switch (layout) {
    case Layout::kRows: return round_up(static_cast<size_t>(row_bytes(type, k)) * kPanelRows);
    case Layout::kF32: return n * 64;
    case Layout::kF16:
    case Layout::kBF16: return round_up(n * 32);
    case Layout::kQ8_0: return n / 64 * sizeof(Q8_0Group) + (n % 64 != 0 ? kQ8_0HalfGroupBytes : 0);
    case Layout::kQ4_K: return n / 256 * sizeof(Q4_KBlock);
    case Layout::kQ6_K: return n / 256 * sizeof(Q6_KBlock);
    case Layout::kMXFP4:
      return n / 64 * sizeof(MXFP4Group) + (n % 64 != 0 ? kMXFP4HalfGroupBytes : 0);
  }
  CHECK(false, "layout ", static_cast<uint32_t>(layout));
}

void pack_panel(Layout layout, TensorType type, const std::byte* rows, int row_count, int64_t k,
                std::byte* panel) {
  CHECK(row_count >= 1 && row_count <= kPanelRows, "rows of a panel: ", row_count);
  CHECK(layout == Layout::kRows || layout == fast_layout(type), layout_name(layout),
        " cannot hold ", type_info(type).name);
  CHECK(k > 0 && k % type_info(type).block_weights == 0, "k ", k, " of ", type_info(type).name);
  // Missing rows and paddings are zeros; stored Q8_0 codes are never looked at without their scale.
  if (row_count < kPanelRows || has_padding(layout, k)) {
    std::memset(panel, 0, panel_bytes(layout, type, k));
  }
  const size_t stride = static_cast<size_t>(row_bytes(type, k));
  const size_t count = static_cast<size_t>(row_count);
  const auto done = static_cast<size_t>(pack_quads(layout, rows, row_count, k, panel));
  switch (layout) {
    case Layout::kRows: std::memcpy(panel, rows, stride * count); return;
    case Layout::kF32: pack_elements(rows, done, count, k, 4, panel); return;
    case Layout::kF16:
    case Layout::kBF16: pack_elements(rows, done, count, k, 2, panel); return;
    case Layout::kQ8_0:
      for (size_t r = done; r < count; ++r) {
        pack_q8_0(rows + r * stride, static_cast<int>(r), k, panel);
      }
      return;
    case Layout::kQ4_K:
      for (size_t r = done; r < count; ++r) {
        pack_q4_k(rows + r * stride, static_cast<int>(r), k, panel);
      }
      return;
    case Layout::kQ6_K:
      for (size_t r = done; r < count; ++r) {
        pack_q6_k(rows + r * stride, static_cast<int>(r), k, panel);
      }
      return;
    case Layout::kMXFP4:
      for (size_t r = done; r < count; ++r) {
        pack_mxfp4(rows + r * stride, static_cast<int>(r), k, panel);
      }
      return;
  }
}

}  // namespace kernels
