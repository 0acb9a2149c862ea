#include "model/gguf_values.h"

#include <utility>

#include "base/cat.h"
#include "model/gguf.h"
#include "model/printable.h"

namespace model {

namespace {

using base::cat;
using base::Code;
using base::Error;
using base::Result;

/// Types of metadata values by their id.
enum class Kind : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
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

Error broken(std::string message) {
  return {Code::kBrokenFile, std::move(message)};
}

/// Bytes of one value of a kind inside an array (of a string: the fewest); 0 if none is known.
uint64_t element_bytes(uint32_t kind) {
  switch (static_cast<Kind>(kind)) {
    case Kind::kU8:
    case Kind::kI8:
    case Kind::kBool: return 1;
    case Kind::kU16:
    case Kind::kI16: return 2;
    case Kind::kU32:
    case Kind::kI32:
    case Kind::kF32: return 4;
    case Kind::kString:
    case Kind::kU64:
    case Kind::kI64:
    case Kind::kF64: return 8;
    case Kind::kArray: break;
  }
  return 0;
}

template <class T>
Result<int64_t> read_integer(GgufCursor& cursor, const Field& field) {
  ASSIGN_OR_RETURN(const T value, cursor.number<T>(field));
  if (!std::in_range<int64_t>(value)) {
    return broken(cat("the ", field.text(), " holds ", value, ", which is out of range"));
  }
  return static_cast<int64_t>(value);
}

/// An integer of a kind, widened. REQUIRES: kind is an integer type.
Result<int64_t> read_integer(GgufCursor& cursor, Kind kind, const Field& field) {
  switch (kind) {
    case Kind::kU8: return read_integer<uint8_t>(cursor, field);
    case Kind::kI8: return read_integer<int8_t>(cursor, field);
    case Kind::kU16: return read_integer<uint16_t>(cursor, field);
    case Kind::kI16: return read_integer<int16_t>(cursor, field);
    case Kind::kU32: return read_integer<uint32_t>(cursor, field);
    case Kind::kI32: return read_integer<int32_t>(cursor, field);
    case Kind::kU64: return read_integer<uint64_t>(cursor, field);
    default: return read_integer<int64_t>(cursor, field);
  }
}

/// A float of a kind, widened. REQUIRES: kind is kF32 or kF64.
Result<double> read_float(GgufCursor& cursor, Kind kind, const Field& field) {
  if (kind == Kind::kF64) return cursor.number<double>(field);
  ASSIGN_OR_RETURN(const float value, cursor.number<float>(field));
  return static_cast<double>(value);
}

Result<bool> read_bool(GgufCursor& cursor, const Field& field) {
  ASSIGN_OR_RETURN(const uint8_t value, cursor.number<uint8_t>(field));
  if (value > 1) return broken(cat("the ", field.text(), " holds ", value, ", not a boolean"));
  return value == 1;
}

/// `count` values one after the other, each by `read()`.
template <class T, class Read>
Result<Value> read_list(uint64_t count, const Read& read) {
  std::vector<T> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(T value, read());
    values.push_back(std::move(value));
  }
  return Value(std::move(values));
}

Result<Value> read_array(GgufCursor& cursor, const Field& field) {
  ASSIGN_OR_RETURN(const uint32_t id, cursor.number<uint32_t>(field));
  ASSIGN_OR_RETURN(const uint64_t count, cursor.number<uint64_t>(field));
  const uint64_t bytes = element_bytes(id);
  if (static_cast<Kind>(id) == Kind::kArray) {
    return Error{Code::kUnsupported, cat("the ", field.text(),
                                         " is an array of arrays, which "
                                         "this program does not read")};
  }
  if (bytes == 0) return broken(cat("the ", field.text(), " has elements of unknown type ", id));
  if (count > cursor.remaining() / bytes) return cursor.too_short(field);
  const auto kind = static_cast<Kind>(id);
  switch (kind) {
    case Kind::kBool: return read_list<bool>(count, [&] { return read_bool(cursor, field); });
    case Kind::kString:
      return read_list<std::string>(count, [&] { return cursor.string(field, kStringBytesMax); });
    case Kind::kF32:
    case Kind::kF64:
      return read_list<double>(count, [&] { return read_float(cursor, kind, field); });
    default: return read_list<int64_t>(count, [&] { return read_integer(cursor, kind, field); });
  }
}

Result<Value> read_value(GgufCursor& cursor, const Field& field) {
  ASSIGN_OR_RETURN(const uint32_t id, cursor.number<uint32_t>(field));
  const auto kind = static_cast<Kind>(id);
  if (kind == Kind::kArray) return read_array(cursor, field);
  if (element_bytes(id) == 0) {
    return broken(cat("the ", field.text(), " has the unknown value type ", id));
  }
  if (kind == Kind::kString) {
    ASSIGN_OR_RETURN(std::string text, cursor.string(field, kStringBytesMax));
    return Value(std::move(text));
  }
  if (kind == Kind::kBool) {
    ASSIGN_OR_RETURN(const bool value, read_bool(cursor, field));
    return Value(value);
  }
  if (kind == Kind::kF32 || kind == Kind::kF64) {
    ASSIGN_OR_RETURN(const double value, read_float(cursor, kind, field));
    return Value(value);
  }
  if (kind == Kind::kU64) {
    ASSIGN_OR_RETURN(const uint64_t value, cursor.number<uint64_t>(field));
    if (!std::in_range<int64_t>(value)) return Value(value);
    return Value(static_cast<int64_t>(value));
  }
  ASSIGN_OR_RETURN(const int64_t value, read_integer(cursor, kind, field));
  return Value(value);
}

}  // namespace

Result<Metadata> read_metadata(GgufCursor& cursor, uint64_t count) {
  Metadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    const Field key_field = {.what = "name of metadata key", .index = static_cast<int64_t>(i)};
    ASSIGN_OR_RETURN(std::string key, cursor.string(key_field, kNameBytesMax));
    if (key.empty()) return broken(cat("the ", key_field.text(), " is empty"));
    if (metadata.find(key) != nullptr) {
      return broken(cat("metadata key '", printable(key), "' occurs twice"));
    }
    ASSIGN_OR_RETURN(Value value,
                     read_value(cursor, {.what = "value of metadata key", .name = key}));
    metadata.set(std::move(key), std::move(value));
  }
  return metadata;
}

}  // namespace model
