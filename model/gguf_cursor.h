// Reads the little-endian fields of a GGUF header one after the other, never past its end.
//
// Every read says what it reads, so that a file that ends too early is reported by field. Reads go
// through a window, so that 100,000 short strings are not 100,000 system calls. One thread.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "model/file_reader.h"

namespace model {

/// What a read is about, for messages: "tensor 12's name", "metadata key 'a.b'".
struct Field {
  std::string_view what;       // "name of tensor"
  std::string_view name = {};  // printed in quotes if not empty
  int64_t index = -1;          // printed if not negative

  std::string text() const;
};

class GgufCursor {
 public:
  /// `file` must outlive the cursor.
  explicit GgufCursor(FileReader& file);

  uint64_t position() const { return position_; }
  /// Bytes left of what a header may be.
  uint64_t remaining() const { return end_ - position_; }

  template <class T>
  base::Result<T> number(const Field& field) {
    T value;
    RETURN_IF_ERROR(copy({reinterpret_cast<std::byte*>(&value), sizeof value}, field));
    return value;
  }
  /// A 64-bit length, then the bytes.
  base::Result<std::string> string(const Field& field, uint64_t length_max);
  /// Moves the next out.size() bytes into `out`.
  base::Status copy(std::span<std::byte> out, const Field& field);
  /// The error for a field that ends after the file does.
  base::Error too_short(const Field& field) const;

 private:
  base::Status fill();

  FileReader& file_;
  uint64_t end_;           // of the file, or of the longest header accepted
  uint64_t position_ = 0;  // of the next field
  std::vector<std::byte> window_;
  uint64_t window_start_ = 0;  // position of window_[0]
};

}  // namespace model
