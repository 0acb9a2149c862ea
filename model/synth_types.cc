#include "model/synth_types.h"

#include <string>

#include "base/cat.h"
#include "base/check.h"
#include "model/printable.h"

namespace model {

namespace {

using kernels::TensorType;

/// A type that weights can be written in, and what goes with it.
struct WeightType {
  TensorType type;
  int64_t file_type;  // as numbered by GGUF's writers
  TensorType head;    // of output.weight
  // For rows that are no whole blocks.
  TensorType fallback = TensorType::kF16;
};
constexpr WeightType kWeightTypes[] = {
    {TensorType::kF32, 0, TensorType::kF32},
    {TensorType::kF16, 1, TensorType::kF16},
    {TensorType::kBF16, 32, TensorType::kBF16},
    {TensorType::kQ8_0, 7, TensorType::kQ8_0},
    {TensorType::kQ4_0, 2, TensorType::kQ6_K},
    {TensorType::kQ4_1, 3, TensorType::kQ6_K},
    {TensorType::kQ5_0, 8, TensorType::kQ6_K},
    {TensorType::kQ5_1, 9, TensorType::kQ6_K},
    {TensorType::kQ2_K, 10, TensorType::kQ6_K, TensorType::kIQ4_NL},
    {TensorType::kQ3_K, 11, TensorType::kQ6_K, TensorType::kIQ4_NL},
    {TensorType::kQ4_K, 14, TensorType::kQ6_K, TensorType::kQ5_0},
    {TensorType::kQ5_K, 16, TensorType::kQ6_K, TensorType::kQ5_1},
    {TensorType::kQ6_K, 18, TensorType::kQ6_K, TensorType::kQ8_0},
    {TensorType::kIQ4_NL, 25, TensorType::kQ6_K},
    {TensorType::kIQ4_XS, 30, TensorType::kQ6_K, TensorType::kIQ4_NL},
    {TensorType::kIQ1_S, 24, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ1_M, 31, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ2_XXS, 19, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ2_XS, 20, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ2_S, 28, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ3_XXS, 23, TensorType::kQ5_K, TensorType::kIQ4_NL},
    {TensorType::kIQ3_S, 26, TensorType::kQ6_K, TensorType::kIQ4_NL},
    {TensorType::kMXFP4, 38, TensorType::kQ8_0},
};

const WeightType& find(TensorType type) {
  for (const WeightType& row : kWeightTypes)
    if (row.type == type) return row;
  CHECK(false, "weights are not written as ", kernels::type_info(type).name);
  return kWeightTypes[0];
}

std::string lower(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

bool fits(TensorType type, int64_t row_length) {
  return row_length % kernels::type_info(type).block_weights == 0;
}

}  // namespace

base::Result<TensorType> synth_weight_type(std::string_view name) {
  std::string known;
  for (const WeightType& row : kWeightTypes) {
    const std::string of_row = lower(kernels::type_info(row.type).name);
    if (lower(name) == of_row) return row.type;
    known += base::cat(known.empty() ? "" : ", ", of_row);
  }
  return base::Error{
      base::Code::kInvalidArgument,
      base::cat("weights cannot be written as '", printable(name), "'; known types are ", known)};
}

TensorType synth_tensor_type(TensorType type, const SynthTensor& tensor) {
  switch (tensor.role) {
    case SynthRole::kNorm:
    case SynthRole::kRouter:
    case SynthRole::kBias: return TensorType::kF32;
    default: break;
  }
  TensorType chosen = type;
  if (tensor.role == SynthRole::kHead) chosen = find(type).head;
  if (type == TensorType::kMXFP4 && tensor.role != SynthRole::kExperts) chosen = TensorType::kQ8_0;
  while (!fits(chosen, tensor.shape[0])) chosen = find(chosen).fallback;
  return chosen;
}

int64_t synth_file_type(TensorType type) {
  return find(type).file_type;
}

}  // namespace model
