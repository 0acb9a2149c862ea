// What a model file holds, for people and for programs: metadata, tensors, bytes.
//
// Pure functions of a checked model; reads no tensor data. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/formats.h"
#include "model/model.h"

namespace model {

struct InspectOptions {
  // Whether a weight type has a fast path on this machine; the column is left out if unset.
  std::function<bool(kernels::TensorType)> has_fast_path;
};

/// Bytes of all tensors.
uint64_t weight_bytes(const Directory& directory);
/// Weights read to decode one token: all dense tensors, the chosen experts' share of the expert
/// tensors, one row of the token embedding (all of it too if it is also the output).
uint64_t active_bytes_per_token(const Model& model);

/// Several lines of text; long values are shortened.
std::string inspect_report(const Model& model, const InspectOptions& options = {});
/// One JSON object; arrays of more than 16 entries become {"length": n, "first": [...]}.
std::string inspect_json(const Model& model, const InspectOptions& options = {});

}  // namespace model
