// The smallest well-formed model of each architecture, to be broken by tests, and loading from
// bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/model.h"
#include "tests/model/gguf_builder.h"

namespace model_test {

/// 2 layers, hidden 32, 4 heads and 2 KV heads of 8, 4 experts of width 16 (2 used) or a dense
/// width of 48, vocabulary 40; all tensors F32 and zero. Where a family has it: layer 0 dense, two
/// shared experts, a latent of 24 with 4 rotated elements. `architecture` as in
/// known_architectures(), or "mixtral" for llama with experts, or "deepseek2-joint" for keys and
/// values in one tensor.
GgufFile tiny_model(std::string_view architecture);

/// Reads and binds a file image; messages start with "image.gguf: ".
base::Result<model::Model> load_image(const Bytes& bytes);
base::Result<model::Model> load_image(const GgufFile& file);

/// Path of a golden model in the repository.
std::string golden_model(std::string_view file);
/// Folder of the full golden set beside the repository; empty if it is not there.
std::string full_golden_folder();

}  // namespace model_test
