#include "kernels/kv_type.h"

namespace kernels {

const char* kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF16: break;
    case KvType::kF32: return "f32";
    case KvType::kQ8_0: return "q8_0";
  }
  return "f16";
}

std::optional<KvType> find_kv_type(std::string_view name) {
  for (const KvType type : {KvType::kF16, KvType::kF32, KvType::kQ8_0})
    if (name == kv_type_name(type)) return type;
  return std::nullopt;
}

KvElement kv_element(KvType type) {
  switch (type) {
    case KvType::kF16: break;
    case KvType::kF32: return {.bytes = 4};
    case KvType::kQ8_0: return {.bytes = 1, .scale_bytes = 2};
  }
  return {.bytes = 2};
}

size_t kv_row_bytes(KvType type, int64_t dims) {
  const KvElement element = kv_element(type);
  const int64_t groups = (dims + kKvGroup - 1) / kKvGroup;
  return static_cast<size_t>(dims * element.bytes + groups * element.scale_bytes);
}

}  // namespace kernels
