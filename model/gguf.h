// The directory of one GGUF file: its metadata and where its tensors lie.
//
// Layout (versions 2 and 3, little-endian;
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
//
//   "GGUF"  u32 version  u64 tensors  u64 keys
//   keys x    { string name, u32 type, value }          string = u64 length, bytes
//   tensors x { string name, u32 dimensions, u64 shape[dimensions], u32 type, u64 offset }
//   zeros up to a multiple of general.alignment (32 if absent), then the tensors' data
//
// Nothing read from the file is used as a count, length, offset or type before it was checked.
#pragma once

#include "model/file_reader.h"
#include "model/model.h"

namespace model {

/// Longest accepted: names of keys and tensors, and strings as values.
inline constexpr uint64_t kNameBytesMax = 1024;
inline constexpr uint64_t kStringBytesMax = 16 << 20;

/// Reads one file, which may be a part of a split one; reads no tensor data. In the result `files`
/// has one entry with the reader's name and size. Errors: kBrokenFile, kUnsupported, kSystem; each
/// is one sentence that starts with the file's name and names the field.
base::Result<Directory> parse_gguf(FileReader& file, Extent extent = Extent::kWhole);

}  // namespace model
