#include "tests/engine/edited_files.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/half.h"
#include "model/architectures.h"

namespace engine {

using model_test::FileTensor;
using model_test::GgufFile;
using model_test::TemporaryFolder;

base::Result<Logits> run_file(const GgufFile& file, const std::vector<int32_t>& tokens,
                              const LocalRanksOptions& options) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  model_test::write_bytes(path, file.image().bytes);
  ASSIGN_OR_RETURN(const model::Model model, model::load_model(path));
  ASSIGN_OR_RETURN(auto ranks, LocalRanks::start(model, options));
  return ranks->forward(tokens);
}

void expect_equal_logits(const base::Result<Logits>& a, const base::Result<Logits>& b) {
  ASSERT_TRUE(a.ok()) << a.error().message;
  ASSERT_TRUE(b.ok()) << b.error().message;
  ASSERT_EQ(a->positions.size(), b->positions.size());
  for (size_t p = 0; p < a->positions.size(); p++) {
    ASSERT_EQ(std::memcmp(a->positions[p].data(), b->positions[p].data(),
                          a->positions[p].size() * sizeof(float)),
              0)
        << "position " << p;
  }
}

void widen(GgufFile& file) {
  constexpr uint32_t kF32 = 0, kF16 = 1;  // as GGUF numbers them
  for (FileTensor& tensor : file.tensors) {
    if (tensor.type != kF16) continue;
    model_test::Bytes wide(tensor.data.size() * 2);
    for (size_t i = 0; i < tensor.data.size() / 2; i++) {
      uint16_t half;
      std::memcpy(&half, tensor.data.data() + 2 * i, sizeof half);
      const float value = kernels::f16_to_f32(half);
      std::memcpy(wide.data() + 4 * i, &value, sizeof value);
    }
    tensor.data = std::move(wide);
    tensor.type = kF32;
  }
}

}  // namespace engine
