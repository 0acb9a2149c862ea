// The weights of one rank: which rows of which tensors lie where (WeightMap), and typed views of
// them once they are loaded (Weights).
//
// The map is a pure function of model, share and arithmetic, so that the loader, a re-attaching
// worker and the engine agree on every offset without talking.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "plan/plan.h"

namespace engine {

/// Slices start at multiples of this, as tensors of an arena do.
inline constexpr size_t kSliceAlignment = 128;

/// Some rows of one tensor, packed. A tensor may hold several matrices of equal shape one after the
/// other (experts; KV heads), of some of which the same rows are taken: of neighbours, or of those
/// in a list.
///
///   offset: matrix 0: panel 0, panel 1, …   matrix 1: panel 0, …     (panels of 16 rows)
struct WeightSlice {
  const model::TensorInfo* tensor = nullptr;
  kernels::TensorType type = kernels::TensorType::kF32;  // of the rows as they are packed
  int64_t row_length = 0;
  kernels::Layout layout = kernels::Layout::kRows;
  int64_t matrix_begin = 0;  // first matrix taken
  int64_t matrix_count = 1;
  std::vector<int32_t> listed = {};  // [matrix_count] those taken, ascending; or empty: neighbours
  int64_t matrix_rows = 0;           // rows of a whole matrix in the file
  plan::Range rows;                  // taken of each matrix
  // The first `row_length` rows of each matrix of the file, expanded to float32 and transposed:
  // row r holds weight r of each of them.
  bool transposed = false;
  // If given, the matrices are tensors of their own, [matrix] of which `tensor` is the first.
  const model::TensorInfo* const* parts = nullptr;
  uint64_t offset = 0;  // from the start of the rank's weights
  size_t panel_bytes = 0;
  size_t matrix_bytes = 0;  // of the rows taken of one matrix, padded to whole panels

  uint64_t bytes() const { return static_cast<uint64_t>(matrix_count) * matrix_bytes; }
  /// Number in the file of the taken matrix `index`, [0, matrix_count).
  int64_t matrix_number(int64_t index) const {
    return listed.empty() ? matrix_begin + index : listed[static_cast<size_t>(index)];
  }
};

/// Slices of one layer as indices into WeightMap::slices; -1 where the model has none.
struct BlockSlices {
  int attention_norm = -1, q = -1, k = -1, v = -1, attention_output = -1;
  int q_bias = -1, k_bias = -1, v_bias = -1, attention_output_bias = -1;
  int q_norm = -1, k_norm = -1, sinks = -1;
  int q_down = -1, q_down_norm = -1, q_up = -1;
  int kv_down = -1, kv_down_norm = -1, k_up = -1, v_up = -1;
  int ffn_norm = -1, router = -1, selection_bias = -1, gate = -1, up = -1, down = -1;
  int router_bias = -1, gate_bias = -1, up_bias = -1, down_bias = -1;
  int shared_router = -1, shared_gate = -1, shared_up = -1, shared_down = -1;
};

struct WeightMap {
  std::vector<WeightSlice> slices;  // in the order of their offsets
  std::vector<BlockSlices> blocks;
  int token_embedding = -1, output_norm = -1, output = -1;
  int rope_factors = -1, rope_factors_long = -1;
  uint64_t bytes = 0;  // of all slices
};

/// GGUF rows of `row_length` weights each as float32, transposed: what a slice that says so packs.
std::vector<std::byte> transposed_rows(kernels::TensorType type, std::span<const std::byte> rows,
                                       int64_t row_length);

/// The model, share and ops must outlive nothing; the tensors borrowed by the slices must outlive
/// the map.
WeightMap map_weights(const model::Model& model, const plan::RankShare& share,
                      const kernels::Ops& ops);

/// One or several matrices of equal shape, ready for Ops::matmul.
struct Matrix {
  const std::byte* panels = nullptr;
  kernels::Layout layout = kernels::Layout::kRows;
  kernels::TensorType type = kernels::TensorType::kF32;
  kernels::ActivationFormat activations = kernels::ActivationFormat::kF32;
  int64_t rows = 0;  // of one matrix on this rank
  int64_t k = 0;     // row length
  size_t panel_bytes = 0;
  size_t matrix_bytes = 0;

  bool empty() const { return rows == 0; }
  int64_t panel_count() const { return (rows + kernels::kPanelRows - 1) / kernels::kPanelRows; }
};

/// Views of one layer; pointers are nullptr and matrices empty where the model or the rank has
/// none.
struct BlockWeights {
  const float* attention_norm = nullptr;         // [hidden]
  const float* ffn_norm = nullptr;               // [hidden]
  const float* q_norm = nullptr;                 // [head_dim] or [heads * head_dim]
  const float* k_norm = nullptr;                 // [head_dim] or [kv_heads * head_dim]
  const float* q_bias = nullptr;                 // [heads * head_dim]
  const float* k_bias = nullptr;                 // [kv_heads * head_dim]
  const float* v_bias = nullptr;                 // [kv_heads * value_dim]
  const float* attention_output_bias = nullptr;  // [hidden]
  const float* sinks = nullptr;                  // [heads]
  const float* q_down_norm = nullptr;            // [query rank]
  const float* kv_down_norm = nullptr;           // [latent rank]
  const float* selection_bias = nullptr;         // [experts]
  const float* router_bias = nullptr;            // [experts]
  const float* gate_bias = nullptr;              // [experts][width], as are those of up
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [experts][hidden]
  Matrix q;                          // own heads * head_dim rows
  Matrix k, v;                       // one matrix per own KV head
  Matrix q_down;                     // own query rank rows
  Matrix q_up;                       // own heads * query_dim rows
  Matrix kv_down;                    // own latent rows
  Matrix k_up, v_up;                 // one matrix per own head: [latent] or [value] rows
  Matrix attention_output;           // own hidden rows
  Matrix router;                     // own experts' rows
  // One matrix per expert, own width or hidden rows; or of whole experts one per own expert, all
  // rows.
  Matrix gate, up, down;
  Matrix shared_router;           // one row, on one rank
  Matrix shared_gate, shared_up;  // own shared width rows
  Matrix shared_down;             // own hidden rows
};

struct Weights {
  Matrix token_embedding;              // own vocabulary rows, layout kRows
  const float* output_norm = nullptr;  // [hidden]
  Matrix output;                       // own vocabulary rows
  // [rope dims / 2] or nullptr
  const float *rope_factors = nullptr, *rope_factors_long = nullptr;
  std::vector<BlockWeights> blocks;
};

/// Views into `base`, which holds map.bytes loaded bytes and must outlive them.
Weights bind_weights(const WeightMap& map, const std::byte* base);

}  // namespace engine
