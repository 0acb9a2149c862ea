// Writes GGUF files for tests: any version, alignment, metadata and tensors, also broken ones.
//
// Knows nothing of model/gguf.cc, so that reader and writer check each other. read_gguf() trusts
// its file; it takes apart golden files that a test wants to write again with something changed:
//
//   GgufFile file = read_gguf(golden);
//   file.set("qwen3moe.expert_used_count", u16(2));
//   write_bytes(path, file.image().bytes);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace model_test {

using Bytes = std::vector<std::byte>;

/// A metadata value as it stands in the file.
struct RawValue {
  uint32_t type = 0;
  Bytes bytes;  // after the type
};

RawValue u8(uint8_t value);
RawValue i8(int8_t value);
RawValue u16(uint16_t value);
RawValue i16(int16_t value);
RawValue u32(uint32_t value);
RawValue i32(int32_t value);
RawValue u64(uint64_t value);
RawValue i64(int64_t value);
RawValue f32(float value);
RawValue f64(double value);
RawValue boolean(bool value);
RawValue text(std::string_view value);
/// All elements have the type of the first. REQUIRES: at least one element.
RawValue array(const std::vector<RawValue>& elements);
RawValue texts(const std::vector<std::string>& elements);
/// An array header of any claimed count, followed by the elements that are really there.
RawValue forged_array(uint32_t element_type, uint64_t count, const Bytes& elements = {});

struct FileTensor {
  std::string name;
  std::vector<uint64_t> shape;  // shape[0] = weights per row
  uint32_t type = 0;            // as in kernels::TensorType
  Bytes data;
  std::optional<uint64_t> offset;  // written instead of where the data really is

  /// The data as floats. REQUIRES: type is F32.
  std::span<float> floats();
};

/// A position in a file where one field ends.
struct Boundary {
  size_t offset = 0;
  std::string after;  // for messages: what ends here
};

struct Image {
  Bytes bytes;
  std::vector<Boundary> boundaries;  // ascending; the last is the end of the file
};

struct GgufFile {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; the key general.alignment is up to the caller
  std::vector<std::pair<std::string, RawValue>> keys;
  std::vector<FileTensor> tensors;
  std::optional<uint64_t> claimed_tensors, claimed_keys;  // counts written instead of the true ones

  /// Replaces the value of a key, or adds the key at the end.
  void set(const std::string& key, RawValue value);
  void erase(std::string_view key);
  /// Sets the key general.alignment and lays out the data so.
  void align(uint32_t bytes);
  /// REQUIRES: there is a tensor of that name.
  FileTensor& tensor(std::string_view name);
  bool has_tensor(std::string_view name) const;
  void erase_tensor(std::string_view name);
  FileTensor& add_f32(const std::string& name, const std::vector<uint64_t>& shape);

  Image image() const;
};

/// Takes a well-formed little-endian file apart. REQUIRES: the file exists and is well-formed.
GgufFile read_gguf(const std::string& path);

Bytes read_bytes(const std::string& path);
void write_bytes(const std::string& path, std::span<const std::byte> bytes);

/// A new folder, removed with all it holds when this goes out of scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string file(std::string_view name) const { return path_ + '/' + std::string(name); }

 private:
  std::string path_;
};

}  // namespace model_test
