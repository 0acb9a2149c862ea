#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/limits.h"
#include "kernels/half.h"

namespace kernels {

namespace {

using base::kKvBlockPositions;

/// Weights dequantised at a time: whole blocks of every type, 4 KiB of stack.
constexpr int64_t kChunkWeights = 1024;
/// Columns that share one dequantised chunk.
constexpr int kColumnTile = 64;
/// Partial sums of a dot product; weight i goes to lane i % kLanes, so that the compiler can use
/// vectors without changing the order of a sum.
constexpr int kLanes = 8;
static_assert(kChunkWeights % kLanes == 0);

/// Adds the products of n weights and activations to the lanes. A product of two floats is exact
/// in double.
void add_products(const float* weights, const float* x, int64_t n, double* lanes) {
  double sums[kLanes];
  std::copy_n(lanes, kLanes, sums);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(weights[i + lane]) * static_cast<double>(x[i + lane]);
    }
  }
  for (int lane = 0; i < n; ++i, ++lane) {
    sums[lane] += static_cast<double>(weights[i]) * static_cast<double>(x[i]);
  }
  std::copy_n(sums, kLanes, lanes);
}

/// One row times up to kColumnTile columns, starting with column `first`.
void multiply_row(const MatmulArgs& args, int64_t row, int first) {
  const int columns = std::min(kColumnTile, args.columns - first);
  const auto panel_stride = static_cast<int64_t>(panel_bytes(Layout::kRows, args.type, args.k));
  const std::byte* bytes = args.panels + row / kPanelRows * panel_stride +
                           row % kPanelRows * row_bytes(args.type, args.k);
  float weights[kChunkWeights];
  double sums[kColumnTile][kLanes] = {};
  for (int64_t at = 0; at < args.k; at += kChunkWeights) {
    const int64_t n = std::min(kChunkWeights, args.k - at);
    dequantise_row(args.type, bytes + row_bytes(args.type, at), n, weights);
    for (int c = 0; c < columns; ++c) {
      const auto* x = reinterpret_cast<const float*>(args.x[first + c]);
      add_products(weights, x + at, n, sums[c]);
    }
  }
  for (int c = 0; c < columns; ++c) {
    double total = 0;
    for (const double sum : sums[c]) total += sum;
    args.y[first + c][row] = static_cast<float>(total);
  }
}

void quantise(const float*, int64_t, std::byte*) {
  CHECK(false, "the reference table multiplies float32 activations; nothing is quantised for it");
}

void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(epsilon));
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]));
  }
}

void silu_multiply(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1 + std::exp(-g)) * static_cast<double>(up[i]));
  }
}

void clamped_swiglu(const float* gate, const float* up, int64_t n, const SwigluClamp& clamp,
                    float* out) {
  const double alpha = clamp.alpha, limit = clamp.limit;
  for (int64_t i = 0; i < n; ++i) {
    // Comparisons with a NaN are false, so it goes through.
    const double g = gate[i] > clamp.limit ? limit : static_cast<double>(gate[i]);
    const double u = up[i] > clamp.limit    ? limit
                     : up[i] < -clamp.limit ? -limit
                                            : static_cast<double>(up[i]);
    out[i] = static_cast<float>(g / (1 + std::exp(-alpha * g)) * (u + 1));
  }
}

void add(const float* a, const float* b, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void multiply_add(float a, const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

void softmax(float* x, int64_t n) {
  const double maximum = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - maximum);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(std::exp(static_cast<double>(x[i]) - maximum) / sum);
  }
}

void exp_scaled(const float* x, int64_t n, const ExpScale& scale, float* out) {
  const double offset = scale.offset, divisor = scale.divisor;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(std::exp((static_cast<double>(x[i]) - offset) / divisor));
  }
}

void rope(RopePairs pairs, const float* cos, const float* sin, int dims, float* x) {
  const int half = dims / 2;
  for (int i = 0; i < half; ++i) {
    float* first = pairs == RopePairs::kInterleaved ? x + 2 * i : x + i;
    float* second = pairs == RopePairs::kInterleaved ? first + 1 : first + half;
    const double a = *first;
    const double b = *second;
    const double c = cos[i];
    const double s = sin[i];
    *first = static_cast<float>(a * c - b * s);
    *second = static_cast<float>(a * s + b * c);
  }
}

/// Element `index` of a KV block.
float load_kv(KvType type, const std::byte* block, int64_t index) {
  if (type == KvType::kF32) return reinterpret_cast<const float*>(block)[index];
  return f16_to_f32(reinterpret_cast<const uint16_t*>(block)[index]);
}

void store_kv(KvType type, float value, int64_t index, std::byte* block) {
  if (type == KvType::kF32) {
    reinterpret_cast<float*>(block)[index] = value;
  } else {
    reinterpret_cast<uint16_t*>(block)[index] = f32_to_f16_clamped(value);
  }
}

/// Where element `dim` of a position lies in a q8_0 block, and its scale.
struct Q8Place {
  size_t code, scale;
};
enum class Of { kKeys, kValues };
Q8Place q8_place(Of of, int64_t dim, int64_t dims, int64_t slot) {
  const int64_t first = dim / kKvGroup * kKvGroup;
  const int64_t count = std::min<int64_t>(kKvGroup, dims - first);
  const size_t group = static_cast<size_t>(first / kKvGroup) * kKvGroupBytes;
  const int64_t code =
      of == Of::kKeys ? (dim - first) * kKvBlockPositions + slot : slot * count + dim - first;
  return {group + static_cast<size_t>(code),
          group + static_cast<size_t>(count * kKvBlockPositions + slot * 2)};
}

/// Quantises one position as kv_type.h says.
void store_q8_0(Of of, const float* x, int64_t dims, int slot, std::byte* block) {
  for (int64_t first = 0; first < dims; first += kKvGroup) {
    const int64_t end = std::min<int64_t>(first + kKvGroup, dims);
    float top = 0;
    for (int64_t i = first; i < end; ++i) {
      const float magnitude = std::fabs(x[i]);
      if (!(magnitude <= top)) top = magnitude;
      if (std::isnan(top)) break;
    }
    const uint16_t scale = f32_to_f16_clamped(top / 127.0f);
    const float step = f16_to_f32(scale);
    std::memcpy(block + q8_place(of, first, dims, slot).scale, &scale, sizeof scale);
    for (int64_t i = first; i < end; ++i) {
      const float code = std::nearbyint(step > 0 ? x[i] / step : x[i]);
      const auto byte = static_cast<int8_t>(code < 127 ? std::max(code, -127.0f) : 127.0f);
      std::memcpy(block + q8_place(of, i, dims, slot).code, &byte, sizeof byte);
    }
  }
}

float load_q8_0(const std::byte* block, Q8Place place) {
  int8_t code;
  uint16_t scale;
  std::memcpy(&code, block + place.code, sizeof code);
  std::memcpy(&scale, block + place.scale, sizeof scale);
  return static_cast<float>(code) * f16_to_f32(scale);  // exact
}

/// Of V in a block whose positions have `row_dim` elements.
float load_row(const AttendArgs& args, const std::byte* bytes, int row_dim, int64_t dim,
               int64_t slot) {
  if (args.kv_type == KvType::kQ8_0)
    return load_q8_0(bytes, q8_place(Of::kValues, dim, row_dim, slot));
  return load_kv(args.kv_type, bytes, slot * row_dim + dim);
}

float load_k(const AttendArgs& args, int64_t block, int64_t dim, int64_t slot) {
  const std::byte* bytes = args.k_blocks[block];
  if (args.is_latent) return load_row(args, bytes, args.head_dim, dim, slot);
  if (args.kv_type == KvType::kQ8_0)
    return load_q8_0(bytes, q8_place(Of::kKeys, dim, args.head_dim, slot));
  return load_kv(args.kv_type, bytes, dim * kKvBlockPositions + slot);
}

float load_v(const AttendArgs& args, int64_t block, int64_t dim, int64_t slot) {
  if (args.is_latent) return load_row(args, args.k_blocks[block], args.head_dim, dim, slot);
  return load_row(args, args.v_blocks[block], args.value_dim, dim, slot);
}

void store_k(KvType type, const float* k, int head_dim, int slot, std::byte* block) {
  if (type == KvType::kQ8_0) return store_q8_0(Of::kKeys, k, head_dim, slot, block);
  for (int64_t i = 0; i < head_dim; ++i) store_kv(type, k[i], i * kKvBlockPositions + slot, block);
}

void store_v(KvType type, const float* v, int value_dim, int slot, std::byte* block) {
  if (type == KvType::kQ8_0) return store_q8_0(Of::kValues, v, value_dim, slot, block);
  for (int64_t i = 0; i < value_dim; ++i) {
    store_kv(type, v[i], int64_t{slot} * value_dim + i, block);
  }
}

/// Scores [kSegmentPositions] of the positions that count for a query; the largest one.
double score(const AttendArgs& args, const AttendQuery& query, double* scores) {
  double top = -HUGE_VAL;
  for (int first = query.begin; first < query.end;) {
    const int block = first / kKvBlockPositions, start = block * kKvBlockPositions;
    const int end = std::min(query.end, start + kKvBlockPositions);
    std::fill(scores + first, scores + end, 0.0);
    for (int64_t d = 0; d < args.head_dim; ++d) {
      const double q = query.q[d];
      for (int p = first; p < end; ++p) {
        scores[p] += q * static_cast<double>(load_k(args, block, d, p - start));
      }
    }
    for (; first < end; ++first) {
      scores[first] *= static_cast<double>(query.scale);
      top = std::max(top, scores[first]);
    }
  }
  return top;
}

/// `count` (up to kValueTile) value dimensions from `first` on.
constexpr int kValueTile = 512;
void add_values(const AttendArgs& args, const AttendQuery& query, const double* weights, int first,
                int count) {
  double values[kValueTile] = {};
  for (int p = query.begin; p < query.end; ++p) {
    const int block = p / kKvBlockPositions, slot = p % kKvBlockPositions;
    for (int d = 0; d < count; ++d) {
      values[d] += weights[p] * static_cast<double>(load_v(args, block, first + d, slot));
    }
  }
  for (int d = 0; d < count; ++d) query.out->values[first + d] = static_cast<float>(values[d]);
}

void attend_query(const AttendArgs& args, const AttendQuery& query) {
  double weights[kSegmentPositions];
  // What is kept is a float, and what follows goes by it.
  query.out->top = static_cast<float>(score(args, query, weights));
  double total = 0;
  for (int p = query.begin; p < query.end; ++p) {
    weights[p] = std::exp(weights[p] - static_cast<double>(query.out->top));
    total += weights[p];
  }
  query.out->total = static_cast<float>(total);
  for (int first = 0; first < args.value_dim; first += kValueTile) {
    add_values(args, query, weights, first, std::min(kValueTile, args.value_dim - first));
  }
}

void attend(const AttendArgs& args) {
  for (int i = 0; i < args.count; ++i) attend_query(args, args.queries[i]);
}

void attend_merge(const Attended& next, int value_dim, Attended& all) {
  const float top = std::max(all.top, next.top);
  const double before = std::exp(static_cast<double>(all.top) - static_cast<double>(top));
  const double after = std::exp(static_cast<double>(next.top) - static_cast<double>(top));
  const auto join = [&](float a, float b) {
    return static_cast<float>(static_cast<double>(a) * before + static_cast<double>(b) * after);
  };
  all.top = top;
  all.total = join(all.total, next.total);
  for (int i = 0; i < value_dim; ++i) all.values[i] = join(all.values[i], next.values[i]);
}

void attend_finish(const float* sink, int value_dim, Attended& all) {
  double total = all.total, factor = 1;
  if (sink != nullptr) {
    const double top = std::max(all.top, *sink);
    factor = std::exp(static_cast<double>(all.top) - top);
    total = total * factor + std::exp(static_cast<double>(*sink) - top);
  }
  for (int i = 0; i < value_dim; ++i) {
    all.values[i] = static_cast<float>(static_cast<double>(all.values[i]) * factor / total);
  }
}

constexpr Ops kReference = {
    .name = "reference",
    .is_reference = true,
    .is_tested = true,
    .matmul = {matmul_rows},  // Layout::kRows only
    .quantise = quantise,
    .quantise_32 = quantise,
    .rms_norm = rms_norm,
    .silu_multiply = silu_multiply,
    .clamped_swiglu = clamped_swiglu,
    .add = add,
    .multiply_add = multiply_add,
    .softmax = softmax,
    .exp = exp_scaled,
    .rope = rope,
    .store_k = store_k,
    .store_v = store_v,
    .attend = attend,
    .attend_merge = attend_merge,
    .attend_finish = attend_finish,
};
static_assert(static_cast<int>(Layout::kRows) == 0);

}  // namespace

const Ops& reference_ops() {
  return kReference;
}

void matmul_rows(const MatmulArgs& args) {
  for (int first = 0; first < args.columns; first += kColumnTile) {
    for (int64_t row = 0; row < args.row_count; ++row) multiply_row(args, row, first);
  }
}

}  // namespace kernels
