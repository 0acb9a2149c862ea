// Reading a file at given offsets: the seam through which the GGUF reader sees bytes.
//
// PosixFile is the real thing, MemoryFile serves tests and fuzzers. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "model/model.h"

namespace model {

class FileReader {
 public:
  virtual ~FileReader() = default;
  /// Name for messages: the path of a real file.
  virtual const std::string& name() const = 0;
  virtual uint64_t size() const = 0;
  /// Fills all of `out` with the bytes from `offset` on. REQUIRES: they lie inside size(). Errors:
  /// kSystem when the read fails, kBrokenFile when the file became shorter; the caller adds name().
  virtual base::Status read(uint64_t offset, std::span<std::byte> out) = 0;
};

/// A regular file, opened for reading only.
class PosixFile final : public FileReader {
 public:
  /// Errors: kNotFound, kInvalidArgument (not a regular file), kSystem.
  static base::Result<PosixFile> open(const std::string& path);

  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&& other) noexcept;
  ~PosixFile() override;

  const std::string& name() const override { return source_.path; }
  uint64_t size() const override { return source_.bytes; }
  base::Status read(uint64_t offset, std::span<std::byte> out) override;
  /// What identifies the content, as of open().
  const SourceFile& source() const { return source_; }

 private:
  PosixFile() = default;

  int descriptor_ = -1;
  SourceFile source_;
};

/// Bytes of the caller, which must outlive the reader.
class MemoryFile final : public FileReader {
 public:
  MemoryFile(std::string name, std::span<const std::byte> bytes)
      : name_(std::move(name)), bytes_(bytes) {}

  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  base::Status read(uint64_t offset, std::span<std::byte> out) override;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

}  // namespace model
