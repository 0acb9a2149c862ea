// What the engine asks of an instruction set: one table of functions per ISA.
//
// All tables but `reference` give the same bits for the same input. Threads never appear here: the
// engine gives each thread its own panels, columns or heads. No function allocates.
//
//   rows of a GGUF tensor --pack_panel--> panels of 16 rows --matmul--> 16 outputs per panel
//   float32 activations --quantise--> packed activations ----^
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/attend.h"
#include "kernels/formats.h"

namespace kernels {

inline constexpr int kPanelRows = 16;
/// Panels and packed activations start at multiples of this.
inline constexpr size_t kAlignment = 64;

/// How a matrix lies in an arena. Ids are stored in arena headers: never reused.
enum class Layout : uint32_t {
  kRows = 0,  // the GGUF bytes, row after row: for types without a fast path, and for `reference`
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kQ8_0 = 4,
  kQ4_K = 5,
  kQ6_K = 6,
  kMXFP4 = 7,
  kQ4_0 = 8,
  kQ4_1 = 9,
  kQ5_0 = 10,
  kQ5_1 = 11,
  kQ2_K = 12,
  kQ3_K = 13,
  kQ5_K = 14,
  kIQ4_NL = 15,
  kIQ4_XS = 16,
};
inline constexpr int kLayoutCount = 17;
const char* layout_name(Layout layout);

/// What a layout multiplies with.
enum class ActivationFormat : uint32_t {
  kF32,    // float32 [k]
  kQ8,     // int8 blocks of 256, for types with blocks of 256: kernels/activations.h
  kQ8_32,  // int8 blocks of 32, for types with blocks of 32
};

/// `y[c][row] = sum over k of weight[row][k] * x[c][k]` for neighbouring panels and any number of
/// columns. The bits of a value depend on its row and column only.
struct MatmulArgs {
  const std::byte* panels;    // [panel_count] of panel_bytes()
  int64_t row_count;          // rows in these panels; the last panel may be partial
  int64_t k;                  // weights per row
  TensorType type;            // what the rows were packed from
  const std::byte* const* x;  // [columns] packed activations, kAlignment-aligned
  float* const* y;            // [columns] -> [row_count]
  int columns;
};
using MatmulFunction = void (*)(const MatmulArgs&);

/// Bounds of the clamped SwiGLU of gpt-oss.
struct SwigluClamp {
  float alpha;  // steepness of the gate's sigmoid
  float limit;  // of the gate from above, of up on both sides
};

/// exp((x - offset) / divisor).
struct ExpScale {
  float offset = 0;
  float divisor = 1;
};

/// Which element is turned with which.
enum class RopePairs : uint32_t {
  kInterleaved,  // (2i, 2i + 1)
  kHalves,       // (i, i + dims / 2), "neox"
};

struct Ops {
  const char* name;                     // as given to --isa
  bool is_reference;                    // another arithmetic: exact dequantisation, plain loops
  bool is_tested;                       // on a CPU that has it; others run only when asked for
  MatmulFunction matmul[kLayoutCount];  // nullptr where the ISA has no such layout

  /// Quantises x [k] into `out` [activation_bytes(kQ8, k)]. REQUIRES: x finite, k multiple of 32.
  void (*quantise)(const float* x, int64_t k, std::byte* out);
  /// The same into kQ8_32.
  void (*quantise_32)(const float* x, int64_t k, std::byte* out);
  /// out[i] = x[i] / sqrt(mean(x^2) + epsilon) * weight[i]. out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float epsilon, float* out);
  /// out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]. out may be gate or up.
  void (*silu_multiply)(const float* gate, const float* up, int64_t n, float* out);
  /// g = min(gate[i], limit), u = up[i] within ±limit: out[i] = g / (1 + exp(-alpha g)) * (u + 1).
  /// out may be gate or up. What is not a number stays so.
  void (*clamped_swiglu)(const float* gate, const float* up, int64_t n, const SwigluClamp& clamp,
                         float* out);
  /// out[i] = a[i] + b[i]. out may be a or b.
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  /// y[i] = fma(a, x[i], y[i]).
  void (*multiply_add)(float a, const float* x, int64_t n, float* y);
  /// x = exp(x - max(x)) / sum, in place; sum in a fixed order. REQUIRES: x finite, n >= 1.
  void (*softmax)(float* x, int64_t n);
  /// out[i] = exp((x[i] - offset) / divisor), exp_f32's bits. x may have infinities; out may be x.
  void (*exp)(const float* x, int64_t n, const ExpScale& scale, float* out);
  /// Turns the first `dims` elements of x by the angles given as cos and sin [dims / 2].
  void (*rope)(RopePairs pairs, const float* cos, const float* sin, int dims, float* x);
  /// Writes one position of one KV head into its block. f16 rounds to nearest even and clamps to
  /// the largest finite value; q8_0: kv_type.h. `slot` is the position inside the block.
  void (*store_k)(KvType type, const float* k, int head_dim, int slot, std::byte* block);
  void (*store_v)(KvType type, const float* v, int value_dim, int slot, std::byte* block);
  /// Queries over one segment (attend.h).
  void (*attend)(const AttendArgs&);
  /// `all` becomes that of its own segments and of `next`, which come behind them.
  void (*attend_merge)(const Attended& next, int value_dim, Attended& all);
  /// all.values becomes the result. `sink`, if given, is a score of no position that comes last: it
  /// takes weight and gives no value.
  void (*attend_finish)(const float* sink, int value_dim, Attended& all);
};

/// The layout a tensor of `type` is packed into under `ops`.
Layout layout_for(TensorType type, const Ops& ops);
ActivationFormat activation_format(Layout layout);
/// Bytes of packed activations of one column of `k`, a multiple of kAlignment.
size_t activation_bytes(ActivationFormat format, int64_t k);

/// Bytes of one panel (16 rows of `k` weights), a multiple of kAlignment.
size_t panel_bytes(Layout layout, TensorType type, int64_t k);
/// Packs `row_count` (1 … 16) GGUF rows that lie one after the other into one panel; missing rows
/// become zeros. `panel` is kAlignment-aligned.
void pack_panel(Layout layout, TensorType type, const std::byte* rows, int row_count, int64_t k,
                std::byte* panel);

/// The exact float32 values of one GGUF row of `k` weights. All types of formats.h.
void dequantise_row(TensorType type, const std::byte* row, int64_t k, float* out);

/// Whether this CPU and operating system can run `ops`.
bool can_run(const Ops& ops);
/// Every table of this build, slowest first.
std::vector<const Ops*> all_ops();
/// The table for `--isa name`; "auto" is the fastest tested one that can run. Errors: unknown name
/// (with the known ones), or one that this CPU cannot run.
base::Result<const Ops*> find_ops(std::string_view name);

}  // namespace kernels
