// The bytes of a GGUF header for given metadata and tensors, and where the data lies.
//
// As pictured in model/gguf.h: version 3, data aligned to 32. Numbers of the metadata take the
// narrowest type that published converters use (u32, i32, f32; arrays of i32, f32), because other
// readers insist on it. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/metadata.h"
#include "model/model.h"

namespace model {

inline constexpr uint64_t kGgufAlignment = 32;

/// Where everything lies in a file that is to be written.
struct GgufLayout {
  std::vector<std::byte> header;    // up to the first byte of data
  std::vector<TensorInfo> tensors;  // offset (from the start of the file) and bytes are set
  uint64_t file_bytes = 0;
};

/// Lays out tensors of the given names, types and shapes in their order. REQUIRES: rows are whole
/// blocks, names differ, sizes fit into 63 bits.
GgufLayout lay_out_gguf(const Metadata& metadata, std::vector<TensorInfo> tensors);

}  // namespace model
