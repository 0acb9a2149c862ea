// F32, F16 and BF16: weights converted exactly, float32 activations.
//
// y = (x[0] w[0] + x[2] w[2] + …) + (x[1] w[1] + x[3] w[3] + …): two chains of fma per row, which
// begin at zero and are added at the end.
#pragma once

#include "kernels/matmul.h"
#include "kernels/pack_quads.h"

namespace kernels {

struct F32Weights {
  static constexpr Layout kLayout = Layout::kF32;
  static constexpr TensorType kType = TensorType::kF32;
  static constexpr const char* kName = "f32";
  static constexpr size_t kBytes = 4;
  template <class V>
  static typename V::F32 load(const std::byte* p) {
    return V::load_f32(p);
  }
};
struct F16Weights {
  static constexpr Layout kLayout = Layout::kF16;
  static constexpr TensorType kType = TensorType::kF16;
  static constexpr const char* kName = "f16";
  static constexpr size_t kBytes = 2;
  template <class V>
  static typename V::F32 load(const std::byte* p) {
    return V::load_f16(p);
  }
};
struct BF16Weights {
  static constexpr Layout kLayout = Layout::kBF16;
  static constexpr TensorType kType = TensorType::kBF16;
  static constexpr const char* kName = "bf16";
  static constexpr size_t kBytes = 2;
  template <class V>
  static typename V::F32 load(const std::byte* p) {
    return V::load_bf16(p);
  }
};

template <class Weights>
struct FloatFormat : Weights {
  static constexpr ActivationFormat kActivations = ActivationFormat::kF32;
  static constexpr int64_t kBlock = 64;  // even: the two chains go on from block to block
  static constexpr int kFetches = 1;

  /// [k][16] elements, then zeros up to whole vectors.
  static constexpr size_t offset(int64_t begin) {
    return static_cast<size_t>(begin) * kPanelRows * Weights::kBytes;
  }
  static size_t panel_bytes(int64_t k) {
    return (offset(k) + kAlignment - 1) / kAlignment * kAlignment;
  }
  static bool has_padding(int64_t k) { return offset(k) != panel_bytes(k); }
  static void pack_panel(const std::byte* rows, int row_count, int64_t k, std::byte* panel) {
    pack_elements(rows, row_count, k, Weights::kBytes, panel);
  }

  template <class V>
  struct Sum {
    typename V::F32 chains[2];
  };
  template <class V>
  static Sum<V> empty() {
    return {{V::set_f32(0), V::set_f32(0)}};
  }
  template <class V>
  static typename V::F32 total(const Sum<V>& sum) {
    return V::add_f32(sum.chains[0], sum.chains[1]);
  }

  /// Both chains at once where the registers allow it, else the even and then the odd weights of
  /// the block, which lies in L1.
  template <class V, int P, int C>
  [[gnu::always_inline]] static void block(const BlockArgs<V, Sum<V>>& args) {
    args.template fetch<C>();
    if constexpr (P * C <= 4) {
      chains<V, P, C, 2>(args, 0);
    } else {
      chains<V, P, C, 1>(args, 0);
      chains<V, P, C, 1>(args, 1);
    }
  }

 private:
  /// N chains, of which the first takes weights first, first + 2, …
  template <class V, int P, int C, int N>
  [[gnu::always_inline]] static void chains(const BlockArgs<V, Sum<V>>& args, int first) {
    typename V::F32 sums[N][C][P];
    const std::byte* weights = args.block + args.lane_bytes(0, Weights::kBytes);
    const std::byte* x[C];
    each<N, C, P>([&](int n, int c, int p) {
      sums[n][c][p] = args.sums[c][args.part + p].chains[first + n];
    });
    for (int c = 0; c < C; ++c) x[c] = args.x[c] + static_cast<size_t>(args.begin) * sizeof(float);
    int64_t i = first;
    for (; i + N <= args.count; i += 2) step<V, P, C, N>(weights, x, i, sums);
    if (N == 2 && i < args.count) {
      step<V, P, C, 1>(weights, x, i, sums);
    }
    each<N, C, P>([&](int n, int c, int p) {
      args.sums[c][args.part + p].chains[first + n] = sums[n][c][p];
    });
  }

  /// Weights i … i + N - 1, one for each chain.
  template <class V, int P, int C, int N>
  [[gnu::always_inline]] static void step(const std::byte* weights, const std::byte* const* x,
                                          int64_t i, typename V::F32 (*sums)[C][P]) {
    for (int n = 0; n < N; ++n) {
      typename V::F32 w[P];
      const size_t k = static_cast<size_t>(i + n);
      for (int p = 0; p < P; ++p) {
        const size_t lane = k * kPanelRows + static_cast<size_t>(p * V::kLanes);
        w[p] = Weights::template load<V>(weights + lane * Weights::kBytes);
      }
      for (int c = 0; c < C; ++c) {
        const auto xk = V::splat_f32(x[c] + k * sizeof(float));
        for (int p = 0; p < P; ++p) sums[n][c][p] = V::fma(w[p], xk, sums[n][c][p]);
      }
    }
  }

  template <int N, int C, int P, class F>
  [[gnu::always_inline]] static void each(F f) {
    for (int n = 0; n < N; ++n) {
      for (int c = 0; c < C; ++c) {
        for (int p = 0; p < P; ++p) f(n, c, p);
      }
    }
  }
};

using FormatF32 = FloatFormat<F32Weights>;
using FormatF16 = FloatFormat<F16Weights>;
using FormatBF16 = FloatFormat<BF16Weights>;

}  // namespace kernels
