// One way to damage a model file each, and what the error must say.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
struct Case {
  std::string name;
  std::function<void(GgufFile&)> damage;
  std::string message;  // part of the error
  std::string architecture = "qwen3moe";
};

inline void PrintTo(const Case& broken, std::ostream* out) {
  *out << broken.name;
}

inline std::function<void(GgufFile&)> set(const std::string& key, const RawValue& value) {
  return [=](GgufFile& file) { file.set(key, value); };
}

inline std::function<void(GgufFile&)> erase(const std::string& key) {
  return [=](GgufFile& file) { file.erase(key); };
}

inline std::function<void(GgufFile&)> erase_tensor(const std::string& name) {
  return [=](GgufFile& file) { file.erase_tensor(name); };
}

/// Gives a tensor another shape, with as many zeros as it takes.
inline std::function<void(GgufFile&)> reshape(const std::string& name,
                                              const std::vector<uint64_t>& shape) {
  return [=](GgufFile& file) {
    GgufFile other;
    file.tensor(name) = other.add_f32(name, shape);
  };
}

/// The file is fine; damaged, it gives one sentence that names the field.
inline void expect_refused(const Case& broken) {
  GgufFile file = tiny_model(broken.architecture);
  ASSERT_TRUE(load_image(file).ok());
  broken.damage(file);
  const auto result = load_image(file);
  ASSERT_FALSE(result.ok()) << "the damaged file was accepted";
  const std::string& message = result.error().message;
  EXPECT_NE(message.find(broken.message), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("image.gguf: ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

inline std::string name_of(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

}  // namespace model_test
