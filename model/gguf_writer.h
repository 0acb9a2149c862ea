// Writes a GGUF file piece by piece: the header first, then the data of the tensors in any order.
//
// The file has another name until commit(), so that under its own name it is whole or absent. A
// writer that goes away before commit() removes what it wrote; only a killed process leaves a file
// NAME.part-PID behind. Thread rule: write() from any thread, the rest from one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "model/gguf_layout.h"

namespace model {

struct GgufWriterOptions {
  bool replace = false;  // an existing regular file
};

class GgufWriter {
 public:
  /// Reserves the space and writes the header. Errors: kInvalidArgument (the file exists, or is no
  /// regular file), kNoSpace with the bytes needed and the bytes free, kSystem. Nothing is left
  /// behind by an error.
  static base::Result<GgufWriter> create(const std::string& path, GgufLayout layout,
                                         const GgufWriterOptions& options);

  GgufWriter(GgufWriter&& other) noexcept;
  GgufWriter& operator=(GgufWriter&&) = delete;
  ~GgufWriter();

  const GgufLayout& layout() const { return layout_; }

  /// Writes `bytes` at `offset` of the data of a tensor (an index of layout().tensors). Each byte
  /// of each tensor must be written once. REQUIRES: they lie inside the tensor. Errors: kNoSpace,
  /// kSystem.
  base::Status write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) const;

  /// Gives the file its name. REQUIRES: every byte of every tensor was written. Errors:
  /// kInvalidArgument (the file came into being meanwhile), kSystem.
  base::Status commit();

 private:
  GgufWriter() = default;
  base::Status open_temporary();
  base::Status reserve() const;
  base::Status write_at(uint64_t offset, std::span<const std::byte> bytes) const;

  // Constant after create().
  GgufLayout layout_;
  std::string path_, temporary_path_;
  GgufWriterOptions options_;
  int descriptor_ = -1;
  // Shared, atomic: a count, read after the threads that write were joined.
  std::unique_ptr<std::atomic<uint64_t>> written_;
};

}  // namespace model
