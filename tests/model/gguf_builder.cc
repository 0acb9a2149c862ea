#include "tests/model/gguf_builder.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "kernels/formats.h"

namespace model_test {

namespace {

enum : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

void append_bytes(Bytes& out, const void* bytes, size_t count) {
  if (count == 0) return;
  out.resize(out.size() + count);
  std::memcpy(out.data() + out.size() - count, bytes, count);
}

template <class T>
void append(Bytes& out, const T& value) {
  append_bytes(out, &value, sizeof value);
}

void append_text(Bytes& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  append_bytes(out, text.data(), text.size());
}

template <class T>
RawValue scalar(uint32_t type, T value) {
  RawValue raw{.type = type, .bytes = {}};
  append(raw.bytes, value);
  return raw;
}

uint64_t align_up(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

/// Reads fields of a file that is known to be good.
class Parser {
 public:
  explicit Parser(const Bytes& bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  std::span<const std::byte> take(size_t count) {
    CHECK(count <= bytes_.size() - position_, "the test's own file is too short");
    const std::span<const std::byte> taken(bytes_.data() + position_, count);
    position_ += count;
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto taken = take(number<uint64_t>());
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  void skip_value(uint32_t type) {
    constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    CHECK(type <= kF64, "the test's own file has value type ", type);
    if (type == kString) {
      text();
    } else if (type == kArray) {
      const auto element = number<uint32_t>();
      const auto count = number<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) skip_value(element);
    } else {
      take(kSizes[type]);
    }
  }

 private:
  const Bytes& bytes_;
  size_t position_ = 0;
};

FileTensor parse_tensor(Parser& parser) {
  FileTensor tensor;
  tensor.name = parser.text();
  tensor.shape.resize(parser.number<uint32_t>());
  for (uint64_t& length : tensor.shape) length = parser.number<uint64_t>();
  tensor.type = parser.number<uint32_t>();
  tensor.offset = parser.number<uint64_t>();
  return tensor;
}

/// Bytes that a tensor of this shape and type takes.
size_t data_bytes(const FileTensor& tensor) {
  const kernels::TypeInfo* info = kernels::find_type(tensor.type);
  CHECK(info != nullptr, "unknown tensor type ", tensor.type);
  int64_t bytes = kernels::row_bytes(info->type, static_cast<int64_t>(tensor.shape[0]));
  for (size_t i = 1; i < tensor.shape.size(); ++i) bytes *= static_cast<int64_t>(tensor.shape[i]);
  return static_cast<size_t>(bytes);
}

}  // namespace

RawValue u8(uint8_t value) {
  return scalar(kU8, value);
}
RawValue i8(int8_t value) {
  return scalar(kI8, value);
}
RawValue u16(uint16_t value) {
  return scalar(kU16, value);
}
RawValue i16(int16_t value) {
  return scalar(kI16, value);
}
RawValue u32(uint32_t value) {
  return scalar(kU32, value);
}
RawValue i32(int32_t value) {
  return scalar(kI32, value);
}
RawValue u64(uint64_t value) {
  return scalar(kU64, value);
}
RawValue i64(int64_t value) {
  return scalar(kI64, value);
}
RawValue f32(float value) {
  return scalar(kF32, value);
}
RawValue f64(double value) {
  return scalar(kF64, value);
}
RawValue boolean(bool value) {
  return scalar(kBool, uint8_t{value});
}

RawValue text(std::string_view value) {
  RawValue raw{.type = kString, .bytes = {}};
  append_text(raw.bytes, value);
  return raw;
}

RawValue forged_array(uint32_t element_type, uint64_t count, const Bytes& elements) {
  RawValue raw{.type = kArray, .bytes = {}};
  append(raw.bytes, element_type);
  append(raw.bytes, count);
  append_bytes(raw.bytes, elements.data(), elements.size());
  return raw;
}

RawValue array(const std::vector<RawValue>& elements) {
  CHECK(!elements.empty(), "an array needs an element for its type");
  Bytes bytes;
  for (const RawValue& element : elements) {
    append_bytes(bytes, element.bytes.data(), element.bytes.size());
  }
  return forged_array(elements[0].type, elements.size(), bytes);
}

RawValue texts(const std::vector<std::string>& elements) {
  Bytes bytes;
  for (const std::string& element : elements) append_text(bytes, element);
  return forged_array(kString, elements.size(), bytes);
}

std::span<float> FileTensor::floats() {
  CHECK(type == static_cast<uint32_t>(kernels::TensorType::kF32), "tensor ", name, " is not F32");
  return {reinterpret_cast<float*>(data.data()), data.size() / sizeof(float)};
}

void GgufFile::set(const std::string& key, RawValue value) {
  const auto it = std::ranges::find(keys, key, [](const auto& entry) { return entry.first; });
  if (it != keys.end()) {
    it->second = std::move(value);
  } else {
    keys.emplace_back(key, std::move(value));
  }
}

void GgufFile::erase(std::string_view key) {
  std::erase_if(keys, [&](const auto& entry) { return entry.first == key; });
}

void GgufFile::align(uint32_t bytes) {
  set("general.alignment", u32(bytes));
  alignment = bytes;
}

FileTensor& GgufFile::tensor(std::string_view name) {
  const auto it = std::ranges::find(tensors, name, &FileTensor::name);
  CHECK(it != tensors.end(), "no tensor ", name);
  return *it;
}

bool GgufFile::has_tensor(std::string_view name) const {
  return std::ranges::find(tensors, name, &FileTensor::name) != tensors.end();
}

void GgufFile::erase_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const FileTensor& tensor) { return tensor.name == name; });
}

FileTensor& GgufFile::add_f32(const std::string& name, const std::vector<uint64_t>& shape) {
  FileTensor tensor{.name = name, .shape = shape, .type = 0, .data = {}, .offset = {}};
  tensor.data.resize(data_bytes(tensor));
  tensors.push_back(std::move(tensor));
  return tensors.back();
}

Image GgufFile::image() const {
  Image image;
  Bytes& out = image.bytes;
  const auto ends = [&](const std::string& what) {
    image.boundaries.push_back({out.size(), what});
  };
  for (const char c : magic) out.push_back(static_cast<std::byte>(c));
  ends("magic");
  append(out, version);
  ends("version");
  append(out, claimed_tensors.value_or(tensors.size()));
  ends("tensor count");
  append(out, claimed_keys.value_or(keys.size()));
  ends("key count");
  for (const auto& [key, value] : keys) {
    append(out, uint64_t{key.size()});
    ends("length of key " + key);
    append_bytes(out, key.data(), key.size());
    ends("key " + key);
    append(out, value.type);
    ends("value type of " + key);
    append_bytes(out, value.bytes.data(), value.bytes.size());
    ends("value of " + key);
  }
  uint64_t offset = 0;
  for (const FileTensor& tensor : tensors) {
    append_text(out, tensor.name);
    ends("name of tensor " + tensor.name);
    append(out, static_cast<uint32_t>(tensor.shape.size()));
    ends("dimension count of " + tensor.name);
    for (const uint64_t length : tensor.shape) append(out, length);
    ends("shape of " + tensor.name);
    append(out, tensor.type);
    ends("type of " + tensor.name);
    append(out, tensor.offset.value_or(offset));
    ends("offset of " + tensor.name);
    offset = align_up(offset + tensor.data.size(), alignment);
  }
  for (const FileTensor& tensor : tensors) {
    out.resize(align_up(out.size(), alignment));
    ends("padding before " + tensor.name);
    append_bytes(out, tensor.data.data(), tensor.data.size());
    ends("data of " + tensor.name);
  }
  return image;
}

GgufFile read_gguf(const std::string& path) {
  const Bytes bytes = read_bytes(path);
  Parser parser(bytes);
  parser.take(4);
  GgufFile file;
  file.version = parser.number<uint32_t>();
  const auto tensor_count = parser.number<uint64_t>();
  const auto key_count = parser.number<uint64_t>();
  for (uint64_t i = 0; i < key_count; ++i) {
    std::string key = parser.text();
    const auto type = parser.number<uint32_t>();
    const size_t start = parser.position();
    parser.skip_value(type);
    Bytes value(bytes.begin() + static_cast<ptrdiff_t>(start),
                bytes.begin() + static_cast<ptrdiff_t>(parser.position()));
    if (key == "general.alignment") {
      CHECK(type == kU32, "general.alignment of another type than u32");
      file.alignment = std::to_integer<uint64_t>(value[0]) | std::to_integer<uint64_t>(value[1])
                                                                 << 8;
    }
    file.keys.emplace_back(std::move(key), RawValue{type, std::move(value)});
  }
  for (uint64_t i = 0; i < tensor_count; ++i) file.tensors.push_back(parse_tensor(parser));
  const uint64_t start = align_up(parser.position(), file.alignment);
  for (FileTensor& tensor : file.tensors) {
    const uint64_t offset = start + *tensor.offset;
    const size_t count = data_bytes(tensor);
    CHECK(offset + count <= bytes.size(), path, " is too short for tensor ", tensor.name);
    const auto first = bytes.begin() + static_cast<ptrdiff_t>(offset);
    tensor.data.assign(first, first + static_cast<ptrdiff_t>(count));
    tensor.offset.reset();  // laid out anew when written
  }
  return file;
}

Bytes read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.is_open(), "cannot read ", path);
  const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Bytes bytes(content.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), content.data(), bytes.size());
  return bytes;
}

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  CHECK(file.good(), "cannot write ", path);
}

TemporaryFolder::TemporaryFolder() {
  path_ = (std::filesystem::temp_directory_path() / "numoe-test-XXXXXX").string();
  CHECK(::mkdtemp(path_.data()) != nullptr, "cannot make ", path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace model_test
