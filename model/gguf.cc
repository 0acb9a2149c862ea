#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/cat.h"
#include "model/gguf_cursor.h"
#include "model/gguf_values.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;
using base::Status;

// The fewest bytes that one entry takes, which bounds the counts a file can hold.
constexpr uint64_t kKeyBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kAlignmentMin = 8;  // the specification asks for a multiple of 8

Error broken(std::string message) {
  return {Code::kBrokenFile, std::move(message)};
}

struct Counts {
  uint64_t tensors = 0, keys = 0;
};

Status check_version(uint32_t version) {
  if (version == 2 || version == 3) return {};
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return Error{Code::kUnsupported,
                 "is a big-endian GGUF file; this program reads little-endian "
                 "ones, so get that variant or convert it"};
  }
  return Error{Code::kUnsupported,
               cat("is a GGUF file of version ", version, "; this program reads 2 and 3")};
}

Result<Counts> read_head(GgufCursor& cursor) {
  char magic[4];
  RETURN_IF_ERROR(cursor.copy(std::as_writable_bytes(std::span(magic)), {.what = "magic"}));
  if (std::string_view(magic, 4) != "GGUF") {
    return broken(cat("is not a GGUF file: it starts with '", printable({magic, 4}), "'"));
  }
  ASSIGN_OR_RETURN(const uint32_t version, cursor.number<uint32_t>({.what = "version"}));
  RETURN_IF_ERROR(check_version(version));
  Counts counts;
  ASSIGN_OR_RETURN(counts.tensors, cursor.number<uint64_t>({.what = "number of tensors"}));
  ASSIGN_OR_RETURN(counts.keys, cursor.number<uint64_t>({.what = "number of metadata keys"}));
  if (counts.keys > cursor.remaining() / kKeyBytesMin) {
    return broken(cat("the number of metadata keys is ", counts.keys, ", more than ",
                      cursor.remaining(), " bytes can hold"));
  }
  if (counts.tensors > cursor.remaining() / kTensorBytesMin) {
    return broken(cat("the number of tensors is ", counts.tensors, ", more than ",
                      cursor.remaining(), " bytes can hold"));
  }
  return counts;
}

Result<uint64_t> read_alignment(const Metadata& metadata) {
  constexpr std::string_view kKey = "general.alignment";
  ASSIGN_OR_RETURN(const int64_t value,
                   metadata.integer_or(kKey, kDefaultAlignment, std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max()));
  const auto alignment = static_cast<uint64_t>(value);
  if (value < int64_t{kAlignmentMin} || value > int64_t{1} << 31 ||
      !std::has_single_bit(alignment)) {
    return broken(cat("metadata key '", kKey, "' is ", value, ", not a power of two from ",
                      kAlignmentMin, " to 2^31"));
  }
  return alignment;
}

/// Shape and type into bytes. Errors: rows that are not whole blocks, products beyond 63 bits.
Status set_bytes(TensorInfo& tensor) {
  const kernels::TypeInfo& type = kernels::type_info(tensor.type);
  if (tensor.shape[0] % type.block_weights != 0) {
    return broken(cat("tensor '", printable(tensor.name), "' has rows of ", tensor.shape[0],
                      " weights, which are no whole blocks of ", type.name, " (",
                      type.block_weights, " weights)"));
  }
  int64_t bytes = tensor.shape[0] / type.block_weights;
  bool overflow = __builtin_mul_overflow(bytes, int64_t{type.block_bytes}, &bytes);
  int64_t weights = tensor.shape[0];
  for (int i = 1; i < tensor.dimension_count; ++i) {
    overflow = overflow || __builtin_mul_overflow(bytes, tensor.shape[i], &bytes) ||
               __builtin_mul_overflow(weights, tensor.shape[i], &weights);
  }
  if (overflow) {
    return broken(cat("tensor '", printable(tensor.name), "' has a shape whose size overflows"));
  }
  tensor.bytes = static_cast<uint64_t>(bytes);
  return {};
}

Result<kernels::TensorType> known_type(uint32_t id, const Field& field) {
  if (const kernels::TypeInfo* info = kernels::find_type(id)) return info->type;
  std::string known;
  for (uint32_t i = 0; i < 256; ++i) {
    if (const kernels::TypeInfo* info = kernels::find_type(i)) {
      known += cat(known.empty() ? "" : ", ", info->name);
    }
  }
  return Error{Code::kUnsupported,
               cat(field.text(), " has the unknown tensor type ", id, "; known are ", known)};
}

/// One entry of the tensor list; `offset` is still relative to the data.
Result<TensorInfo> read_tensor(GgufCursor& cursor, int64_t index) {
  TensorInfo tensor;
  const Field name_field = {.what = "name of tensor", .index = index};
  ASSIGN_OR_RETURN(tensor.name, cursor.string(name_field, kNameBytesMax));
  if (tensor.name.empty()) return broken(cat("the ", name_field.text(), " is empty"));
  const Field field = {.what = "tensor", .name = tensor.name};
  ASSIGN_OR_RETURN(const uint32_t dimensions, cursor.number<uint32_t>(field));
  if (dimensions < 1 || dimensions > 4) {
    return broken(cat(field.text(), " has ", dimensions, " dimensions, not 1 to 4"));
  }
  tensor.dimension_count = static_cast<int>(dimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    ASSIGN_OR_RETURN(const uint64_t length, cursor.number<uint64_t>(field));
    if (length < 1 || !std::in_range<int64_t>(length)) {
      return broken(cat(field.text(), " has length ", length, " in dimension ", i));
    }
    tensor.shape[i] = static_cast<int64_t>(length);
  }
  ASSIGN_OR_RETURN(const uint32_t type, cursor.number<uint32_t>(field));
  ASSIGN_OR_RETURN(tensor.type, known_type(type, field));
  ASSIGN_OR_RETURN(tensor.offset, cursor.number<uint64_t>(field));
  RETURN_IF_ERROR(set_bytes(tensor));
  return tensor;
}

struct DataRange {
  uint64_t start = 0, file_bytes = 0, alignment = 0;
};

/// Makes the offset absolute and checks that the tensor lies inside the file.
Status place(TensorInfo& tensor, const DataRange& data) {
  const std::string name = printable(tensor.name);
  if (tensor.offset % data.alignment != 0) {
    return broken(cat("tensor '", name, "' has offset ", tensor.offset,
                      ", no multiple of the alignment ", data.alignment));
  }
  uint64_t end = 0;
  if (__builtin_add_overflow(tensor.offset, data.start, &tensor.offset) ||
      __builtin_add_overflow(tensor.offset, tensor.bytes, &end)) {
    return broken(cat("tensor '", name, "' has an offset that overflows"));
  }
  if (end > data.file_bytes) {
    return broken(cat("tensor '", name, "' ends at byte ", end, " but the file has ",
                      data.file_bytes, "; it may be an incomplete download"));
  }
  return {};
}

Status check_overlaps(const std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> order;
  order.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, &TensorInfo::offset);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      return broken(cat("tensors '", printable(order[i - 1]->name), "' and '",
                        printable(order[i]->name), "' overlap"));
    }
  }
  return {};
}

Result<Directory> parse(FileReader& file, Extent extent) {
  GgufCursor cursor(file);
  ASSIGN_OR_RETURN(const Counts counts, read_head(cursor));
  Directory directory;
  directory.files.push_back({.path = file.name(), .bytes = file.size()});
  ASSIGN_OR_RETURN(directory.metadata, read_metadata(cursor, counts.keys));
  ASSIGN_OR_RETURN(const uint64_t alignment, read_alignment(directory.metadata));

  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < counts.tensors; ++i) {
    ASSIGN_OR_RETURN(TensorInfo tensor, read_tensor(cursor, static_cast<int64_t>(i)));
    if (!names.insert(tensor.name).second) {
      return broken(cat("tensor '", printable(tensor.name), "' occurs twice"));
    }
    directory.tensors.push_back(std::move(tensor));
  }
  // The header is at most 256 MiB and the alignment at most 2^31, so this cannot overflow.
  const DataRange data = {
      .start = (cursor.position() + alignment - 1) / alignment * alignment,
      .file_bytes = extent == Extent::kWhole ? file.size() : std::numeric_limits<uint64_t>::max(),
      .alignment = alignment};
  for (TensorInfo& tensor : directory.tensors) RETURN_IF_ERROR(place(tensor, data));
  RETURN_IF_ERROR(check_overlaps(directory.tensors));
  return directory;
}

}  // namespace

Result<Directory> parse_gguf(FileReader& file, Extent extent) {
  auto directory = parse(file, extent);
  if (directory.ok()) return directory;
  return Error{directory.error().code, cat(file.name(), ": ", directory.error().message)};
}

}  // namespace model
