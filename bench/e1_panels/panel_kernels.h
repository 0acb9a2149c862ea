// The panel products of the experiment, in the vocabulary: Q4_K and Q8_0 with every activation
// format, columns side by side or behind pointers. The panels are those of kernels/format_*.h.
//
// X is how a block of activations is reached: field(word, column).
#pragma once

#include "bench/e1_panels/activations.h"
#include "bench/e1_panels/table.h"
#include "kernels/matmul.h"
#include "kernels/format_q4_k.h"
#include "kernels/format_q8_0.h"

namespace e1 {

template <int C>
struct SideBySide {
  const Tile<C>* tile;
  SideBySide(const Job& job, int t, int64_t b)
      : tile(reinterpret_cast<const Tile<C>*>(job.tiles) + t * (job.k / 256) + b) {}
  template <class Field>
  const auto* at(Field field, int i, int c) const {
    return &field(*tile)[i][c];
  }
};
template <int C>
struct BehindPointers {
  const Tile<1>* columns[C];
  BehindPointers(const Job& job, int t, int64_t b) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) columns[c] = job.columns[t * C + c] + b;
  }
  template <class Field>
  const auto* at(Field field, int i, int c) const {
    return &field(*columns[c])[i][0];
  }
};

constexpr auto kX = [](const auto& t) -> auto& {
  return t.x;
};
constexpr auto kSums = [](const auto& t) -> auto& {
  return t.sums;
};
constexpr auto kStart = [](const auto& t) -> auto& {
  return t.start;
};
constexpr auto kShift = [](const auto& t) -> auto& {
  return t.shift;
};
constexpr auto kScale = [](const auto& t) -> auto& {
  return t.scale;
};
constexpr auto kScaledSum = [](const auto& t) -> auto& {
  return t.scaled_sum;
};

template <class V, int P, int C>
using Sums = typename V::F32[C][P];

/// Where a register of a panel block begins.
template <class V>
struct Lanes {
  const std::byte* block;
  int part;
  const std::byte* at(size_t offset, int p, size_t bytes) const {
    return block + offset + static_cast<size_t>((part + p) * V::kLanes) * bytes;
  }
};

template <class V, int P, int C, Kind kind>
struct Q4K {
  static constexpr bool kQ4 = true;
  static constexpr size_t kBlockBytes = sizeof(kernels::Q4_KBlock);
  using Block = kernels::Q4_KBlock;  // begins with its head
  using Head = kernels::SixBitHead;

  template <class X>
  [[gnu::always_inline]] static void block(const Lanes<V>& w, const X& x, Sums<V, P, C>& acc) {
    typename V::Scale scales[P][8];
    typename V::Bytes mins[P][4];
    typename V::F32 d[P], dmin[P];
    typename V::I32 sums[C][P];
    for (int p = 0; p < P; ++p) {
      d[p] = V::load_f16(w.at(offsetof(Head, d), p, 2));
      dmin[p] = V::load_f16(w.at(offsetof(Head, dmin), p, 2));
      read_codes(w, p, scales[p], mins[p]);
      for (int c = 0; c < C; ++c) sums[c][p] = V::set_i32(0);
    }
#pragma GCC unroll 1
    for (int j = 0; j < 8; ++j) {
      typename V::SumU4 dots[C][P];
      dot(w, x, j, dots);
      if constexpr (kind == Kind::kA32) {
        add_a32(x, j, scales, mins, d, dmin, dots, acc);
      } else {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          for (int p = 0; p < P; ++p) {
            auto scaled = V::scale_u4(dots[c][p], scales[p][j]);
            if (kind == Kind::kA256s) scaled = V::shl_lanes(scaled, V::splat(x.at(kShift, j, c)));
            sums[c][p] = V::add(sums[c][p], scaled);
          }
        }
      }
    }
    if constexpr (kind == Kind::kA32) return;
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) {
        auto min = V::set_i32(0);
        for (int i = 0; i < 4; ++i) min = V::dot_i16(min, mins[p][i], V::splat(x.at(kSums, i, c)));
        const auto t = V::fnma(dmin[p], V::to_f32(min), V::mul(d[p], V::to_f32(sums[c][p])));
        acc[c][p] = V::fma(V::splat_f32(x.at(kScale, 0, c)), t, acc[c][p]);
      }
    }
  }

 private:
  [[gnu::always_inline]] static void read_codes(const Lanes<V>& w, int p,
                                                typename V::Scale (&scales)[8],
                                                typename V::Bytes (&mins)[4]) {
    const size_t at = offsetof(Head, packed);
    const auto a = V::load(w.at(at, p, 4)), b = V::load(w.at(at + 64, p, 4));
    const auto c = V::load(w.at(at + 128, p, 4));
    const auto low = V::and_bytes(a, 63), high = V::and_bytes(b, 63), min = V::and_bytes(c, 63);
    const auto min4 = V::or_bytes(V::or_bytes(V::and_bytes(V::template shr_bits<6>(a), 0x03),
                                              V::and_bytes(V::template shr_bits<4>(b), 0x0c)),
                                  V::and_bytes(V::template shr_bits<2>(c), 0x30));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      scales[j] = V::scale_of(low, j);
      scales[j + 4] = V::scale_of(high, j);
    }
    mins[0] = V::even16(min);
    mins[1] = V::odd16(min);
    mins[2] = V::even16(min4);
    mins[3] = V::odd16(min4);
  }

  template <class X>
  [[gnu::always_inline]] static void dot(const Lanes<V>& w, const X& x, int j,
                                         typename V::SumU4 (&dots)[C][P]) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) dots[c][p] = V::zero_u4();
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      typename V::Bytes low[P], high[P];
      for (int p = 0; p < P; ++p) {
        const auto q =
            V::load(w.at(offsetof(Block, codes) + static_cast<size_t>(256 * j + 64 * v), p, 4));
        low[p] = V::and_bytes(q, 15);
        high[p] = V::and_bytes(V::template shr_bits<4>(q), 15);
      }
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const auto xv = V::splat(x.at(kX, 8 * j + v, c));
        for (int p = 0; p < P; ++p) dots[c][p] = V::dot_u4(dots[c][p], low[p], xv);
      }
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const auto xv = V::splat(x.at(kX, 8 * j + 4 + v, c));
        for (int p = 0; p < P; ++p) dots[c][p] = V::dot_u4(dots[c][p], high[p], xv);
      }
    }
  }

  /// One scale per 32: float work in every sub-block.
  template <class X>
  [[gnu::always_inline]] static void add_a32(const X& x, int j, typename V::Scale (&scales)[P][8],
                                             typename V::Bytes (&mins)[P][4],
                                             typename V::F32 (&d)[P], typename V::F32 (&dmin)[P],
                                             typename V::SumU4 (&dots)[C][P], Sums<V, P, C>& acc) {
    const uint32_t one = j & 2 ? 0x10000u : 1u;  // picks a half of the pair that holds min j
    for (int p = 0; p < P; ++p) {
      const auto min = V::dot_i16(V::set_i32(0), mins[p][j / 4 * 2 + j % 2], V::splat(&one));
      const auto scaled_min = V::mul(dmin[p], V::to_f32(min));
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        const auto dot = V::to_f32(V::scale_u4(dots[c][p], scales[p][j]));
        const auto scale = V::mul(d[p], V::splat_f32(x.at(kScale, j, c)));
        acc[c][p] = V::fma(scale, dot, acc[c][p]);
        acc[c][p] = V::fnma(scaled_min, V::splat_f32(x.at(kScaledSum, j, c)), acc[c][p]);
      }
    }
  }
};

template <class V, int P, int C, Kind kind>
struct Q80 {
  static constexpr bool kQ4 = false;
  static constexpr size_t kBlockBytes = 4 * sizeof(kernels::Q8_0Group);

  template <class X>
  [[gnu::always_inline]] static void block(const Lanes<V>& w, const X& x, Sums<V, P, C>& acc) {
    typename V::F32 sums[C][P];
    for (int p = 0; p < P; ++p) {
      for (int c = 0; c < C; ++c) sums[c][p] = V::set_f32(0);
    }
#pragma GCC unroll 1
    for (int j = 0; j < 8; ++j) {
      const size_t group = static_cast<size_t>(j / 2) * sizeof(kernels::Q8_0Group);
      const size_t half = static_cast<size_t>(j % 2);
      typename V::F32 d[P];
      typename V::SumS8 dots[C][P];
      for (int p = 0; p < P; ++p) {
        d[p] = V::load_f16(w.at(group + half * 32, p, 2));
        for (int c = 0; c < C; ++c) dots[c][p] = V::start_s8(x.at(kStart, j, c));
      }
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        typename V::Bytes q[P];
        for (int p = 0; p < P; ++p) {
          q[p] = V::load(w.at(group + 64 + half * 512 + static_cast<size_t>(64 * v), p, 4));
        }
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          const auto xv = V::splat(x.at(kX, 8 * j + v, c));
          for (int p = 0; p < P; ++p) dots[c][p] = V::dot_s8(dots[c][p], q[p], xv);
        }
      }
      add(x, j, d, dots, sums, acc);
    }
    if constexpr (kind == Kind::kA32) return;
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const auto scale = V::splat_f32(x.at(kScale, 0, c));
      for (int p = 0; p < P; ++p) acc[c][p] = V::fma(scale, sums[c][p], acc[c][p]);
    }
  }

 private:
  template <class X>
  [[gnu::always_inline]] static void add(const X& x, int j, typename V::F32 (&d)[P],
                                         typename V::SumS8 (&dots)[C][P], Sums<V, P, C>& sums,
                                         Sums<V, P, C>& acc) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      for (int p = 0; p < P; ++p) {
        auto dot = V::sum_s8(dots[c][p]);
        if (kind == Kind::kA256s) dot = V::shl_lanes(dot, V::splat(x.at(kShift, j, c)));
        if (kind == Kind::kA32) {
          const auto scale = V::mul(d[p], V::splat_f32(x.at(kScale, j, c)));
          acc[c][p] = V::fma(scale, V::to_f32(dot), acc[c][p]);
        } else {
          sums[c][p] = V::fma(d[p], V::to_f32(dot), sums[c][p]);
        }
      }
    }
  }
};

/// All columns of all panels: a panel block meets every column tile before the next block is read.
template <class V, class Format, int P, int C, template <int> class X>
void multiply(const Job& job) {
  constexpr int kParts = kernels::kPanelRows / V::kLanes;
  constexpr int kTilesMax = 64 / C;
  const int64_t blocks = job.k / 256;
  for (int64_t panel = 0; panel < job.panel_count; ++panel) {
    typename V::F32 acc[kTilesMax][kParts / P][C][P];
    for (int t = 0; t < job.column_count / C; ++t) {
      for (auto& part : acc[t]) {
        for (auto& column : part) {
          for (auto& sum : column) sum = V::set_f32(0);
        }
      }
    }
    const std::byte* w = job.panels + static_cast<size_t>(panel * blocks) * Format::kBlockBytes;
    for (int64_t b = 0; b < blocks; ++b, w += Format::kBlockBytes) {
      for (int part = 0; part < kParts; part += P) {
        for (int t = 0; t < job.column_count / C; ++t) {
          Format::block(Lanes<V>{w, part}, X<C>(job, t, b), acc[t][part / P]);
        }
      }
    }
    for (int c = 0; c < job.column_count; ++c) {
      float* y = job.y + (c * job.panel_count + panel) * kernels::kPanelRows;
      for (int part = 0; part < kParts; ++part) {
        V::store_f32(y + part * V::kLanes, acc[c / C][part / P][c % C][part % P]);
      }
    }
  }
}

}  // namespace e1
