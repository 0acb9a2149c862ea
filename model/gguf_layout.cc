#include "model/gguf_layout.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace model {

static_assert(std::endian::native == std::endian::little, "GGUF files are written as numbers lie");

namespace {

/// As numbered by the format.
enum ValueType : uint32_t {
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

uint64_t align_up(uint64_t offset) {
  return (offset + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

class HeaderBytes {
 public:
  template <class T>
  void number(T value) {
    raw({reinterpret_cast<const char*>(&value), sizeof value});
  }
  void text(std::string_view text) {
    number(uint64_t{text.size()});
    raw(text);
  }
  void raw(std::string_view bytes) {
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    bytes_.insert(bytes_.end(), first, first + bytes.size());
  }
  void pad() { bytes_.resize(align_up(bytes_.size())); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

bool is_f32(double value) {
  return !(value - value == 0) || static_cast<double>(static_cast<float>(value)) == value;
}

void put_integer(HeaderBytes& out, int64_t value) {
  if (std::in_range<uint32_t>(value)) {
    out.number(uint32_t{kU32});
    out.number(static_cast<uint32_t>(value));
  } else if (std::in_range<int32_t>(value)) {
    out.number(uint32_t{kI32});
    out.number(static_cast<int32_t>(value));
  } else {
    out.number(uint32_t{kI64});
    out.number(value);
  }
}

void put_float(HeaderBytes& out, double value) {
  if (is_f32(value)) {
    out.number(uint32_t{kF32});
    out.number(static_cast<float>(value));
  } else {
    out.number(uint32_t{kF64});
    out.number(value);
  }
}

void put_array_head(HeaderBytes& out, ValueType element, size_t count) {
  out.number(uint32_t{kArray});
  out.number(uint32_t{element});
  out.number(uint64_t{count});
}

void put_list(HeaderBytes& out, const std::vector<int64_t>& list) {
  const bool narrow =
      std::ranges::all_of(list, [](int64_t value) { return std::in_range<int32_t>(value); });
  put_array_head(out, narrow ? kI32 : kI64, list.size());
  for (const int64_t value : list) {
    if (narrow) {
      out.number(static_cast<int32_t>(value));
    } else {
      out.number(value);
    }
  }
}

void put_list(HeaderBytes& out, const std::vector<double>& list) {
  const bool narrow = std::ranges::all_of(list, is_f32);
  put_array_head(out, narrow ? kF32 : kF64, list.size());
  for (const double value : list) {
    if (narrow) {
      out.number(static_cast<float>(value));
    } else {
      out.number(value);
    }
  }
}

void put_list(HeaderBytes& out, const std::vector<bool>& list) {
  put_array_head(out, kBool, list.size());
  for (const bool value : list) out.number(uint8_t{value});
}

void put_list(HeaderBytes& out, const std::vector<std::string>& list) {
  put_array_head(out, kString, list.size());
  for (const std::string& value : list) out.text(value);
}

void put_value(HeaderBytes& out, const Value& value) {
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_same_v<T, bool>) {
          out.number(uint32_t{kBool});
          out.number(uint8_t{held});
        } else if constexpr (std::is_same_v<T, int64_t>) {
          put_integer(out, held);
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          out.number(uint32_t{kU64});
          out.number(held);
        } else if constexpr (std::is_same_v<T, double>) {
          put_float(out, held);
        } else if constexpr (std::is_same_v<T, std::string>) {
          out.number(uint32_t{kString});
          out.text(held);
        } else {
          put_list(out, held);
        }
      },
      value);
}

}  // namespace

GgufLayout lay_out_gguf(const Metadata& metadata, std::vector<TensorInfo> tensors) {
  HeaderBytes out;
  out.raw("GGUF");
  out.number(uint32_t{3});
  out.number(uint64_t{tensors.size()});
  out.number(uint64_t{metadata.values().size()});
  for (const auto& [key, value] : metadata.values()) {
    out.text(key);
    put_value(out, value);
  }
  uint64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    const kernels::TypeInfo& type = kernels::type_info(tensor.type);
    CHECK(tensor.row_length() % type.block_weights == 0, "rows of ", tensor.name,
          " are no whole blocks of ", type.name);
    tensor.bytes = static_cast<uint64_t>(kernels::row_bytes(tensor.type, tensor.row_length())) *
                   static_cast<uint64_t>(tensor.row_count());
    tensor.offset = offset;
    out.text(tensor.name);
    out.number(static_cast<uint32_t>(tensor.dimension_count));
    for (int i = 0; i < tensor.dimension_count; i++)
      out.number(static_cast<uint64_t>(tensor.shape[i]));
    out.number(static_cast<uint32_t>(tensor.type));
    out.number(tensor.offset);
    offset = align_up(offset + tensor.bytes);
  }
  out.pad();
  GgufLayout layout{.header = out.take(), .tensors = std::move(tensors), .file_bytes = 0};
  for (TensorInfo& tensor : layout.tensors) tensor.offset += layout.header.size();
  layout.file_bytes = layout.header.size() + offset;
  return layout;
}

}  // namespace model
