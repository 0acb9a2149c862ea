// What must hold of a directory that the GGUF reader accepted, and of the model in it; and files
// that are little more than a header.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/file_reader.h"
#include "model/model.h"

namespace fuzz {

/// Bytes of the caller and then zeros, so that a header alone is a model whose tensors are zero.
class HeaderFile final : public model::FileReader {
 public:
  HeaderFile(std::string name, std::span<const std::byte> header)
      : header_(std::move(name), header) {}

  const std::string& name() const override { return header_.name(); }
  uint64_t size() const override { return header_.size() + (uint64_t{1} << 20); }
  base::Status read(uint64_t offset, std::span<std::byte> out) override;

 private:
  model::MemoryFile header_;
};

/// CHECKs that an error is one sentence about the file; that every tensor lies inside it; that a
/// model can be described, divided among ranks, and its tokenizer created or refused.
void check_model(base::Result<model::Directory> directory, uint64_t file_bytes);

}  // namespace fuzz
