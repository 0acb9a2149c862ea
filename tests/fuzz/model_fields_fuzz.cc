// Well-formed files that say something else: the smallest model of an architecture, after edits of
// its keys, shapes and types that bytes alone would hardly find.
#include <limits>

#include "model/gguf.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/checked_model.h"
#include "tests/model/tiny_model.h"

namespace {

using fuzz::Bytes;
using model_test::GgufFile;
using model_test::RawValue;

constexpr size_t kEditsMax = 24;

int64_t interesting(Bytes& bytes) {
  constexpr int64_t kNumbers[] = {0,
                                  1,
                                  -1,
                                  2,
                                  3,
                                  8,
                                  31,
                                  33,
                                  256,
                                  4096,
                                  65536,
                                  int64_t{1} << 31,
                                  int64_t{1} << 32,
                                  std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min()};
  return bytes.flag() ? bytes.one_of(kNumbers) : bytes.number<int64_t>();
}

RawValue any_value(Bytes& bytes) {
  switch (bytes.below(8)) {
    case 0: return model_test::u32(static_cast<uint32_t>(interesting(bytes)));
    case 1: return model_test::i64(interesting(bytes));
    case 2: return model_test::u64(static_cast<uint64_t>(interesting(bytes)));
    case 3: return model_test::f32(bytes.number<float>());
    case 4: return model_test::text(bytes.text());
    case 5: return model_test::boolean(bytes.flag());
    case 6: {
      std::vector<RawValue> elements;
      const size_t count = 1 + bytes.below(6);
      for (size_t i = 0; i < count; i++)
        elements.push_back(model_test::i32(static_cast<int32_t>(interesting(bytes))));
      return model_test::array(elements);
    }
    default:
      return model_test::forged_array(static_cast<uint32_t>(bytes.below(14)),
                                      bytes.number<uint64_t>());
  }
}

void edit_key(GgufFile& file, Bytes& bytes) {
  constexpr const char* kFurther[] = {
      "rope.scaling.type",        "rope.scaling.factor",
      "expert_shared_count",      "rope.scaling.original_context_length",
      "expert_weights_norm",      "expert_weights_scale",
      "expert_gating_func",       "attention.sliding_window",
      "attention.clamp_kqv",      "attention.scale",
      "leading_dense_blocks",     "logit_scale",
      "rope.scaling.attn_factor", "attention.sliding_window_pattern",
      "rope.freq_base_swa",       "interleave_moe_layer_step"};
  const size_t chosen = bytes.below(file.keys.size() + std::size(kFurther));
  if (chosen >= file.keys.size()) {
    const std::string& first = file.keys.size() > 2 ? file.keys[2].first : "llama.x";
    file.set(first.substr(0, first.find('.') + 1) + kFurther[chosen - file.keys.size()],
             any_value(bytes));
  } else if (bytes.below(8) == 0) {
    file.keys.erase(file.keys.begin() + static_cast<ptrdiff_t>(chosen));
  } else {
    file.keys[chosen].second = any_value(bytes);
  }
}

void edit_tensor(GgufFile& file, Bytes& bytes) {
  if (file.tensors.empty()) return;
  model_test::FileTensor& tensor = file.tensors[bytes.below(file.tensors.size())];
  switch (bytes.below(6)) {
    case 0: tensor.type = static_cast<uint32_t>(bytes.below(48)); break;
    case 1: tensor.shape.push_back(static_cast<uint64_t>(interesting(bytes))); break;
    case 2:
      if (!tensor.shape.empty()) bytes.flag() ? tensor.shape.pop_back() : void();
      break;
    case 3:
      if (!tensor.shape.empty())
        tensor.shape[bytes.below(tensor.shape.size())] = static_cast<uint64_t>(interesting(bytes));
      break;
    case 4: tensor.name = bytes.text(); break;
    default: tensor.offset = static_cast<uint64_t>(interesting(bytes)); break;
  }
}

/// The smallest model of each kind, its tensors' data left to the zeros behind the header.
std::vector<GgufFile> make_models() {
  std::vector<GgufFile> files;
  for (const char* name :
       {"qwen3moe", "olmoe", "llama", "mixtral", "qwen3", "deepseek2", "gpt-oss", "llama4"}) {
    files.push_back(model_test::tiny_model(name));
    uint64_t offset = 0;
    for (model_test::FileTensor& tensor : files.back().tensors) {
      tensor.offset = offset;
      offset += tensor.data.size();
      tensor.data.clear();
    }
  }
  return files;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<GgufFile> models = make_models();
  Bytes bytes(data, size);
  GgufFile file = bytes.one_of(models);
  for (size_t edit = 0; edit < kEditsMax && !bytes.empty(); edit++) {
    switch (bytes.below(8)) {
      case 0: file.alignment = uint64_t{1} << bytes.below(13); break;
      case 1:
        if (!file.tensors.empty())
          file.tensors.erase(file.tensors.begin() +
                             static_cast<ptrdiff_t>(bytes.below(file.tensors.size())));
        break;
      case 2:
      case 3:
      case 4: edit_tensor(file, bytes); break;
      default: edit_key(file, bytes); break;
    }
  }
  const model_test::Image image = file.image();
  fuzz::HeaderFile reader("edited.gguf", image.bytes);
  fuzz::check_model(model::parse_gguf(reader), reader.size());
  return 0;
}
