// The header as it is written: values come back, numbers have the types that other readers insist
// on, data is aligned.
#include "model/gguf_layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/gguf.h"
#include "tests/model/gguf_builder.h"

namespace model {
namespace {

TensorInfo tensor(std::string name, kernels::TensorType type, std::vector<int64_t> shape) {
  TensorInfo info;
  info.name = std::move(name);
  info.type = type;
  info.dimension_count = static_cast<int>(shape.size());
  std::ranges::copy(shape, info.shape);
  return info;
}

/// The whole file with zeros as data.
model_test::Bytes file_of(const GgufLayout& layout) {
  model_test::Bytes bytes = layout.header;
  bytes.resize(layout.file_bytes);
  return bytes;
}

Metadata every_kind() {
  Metadata metadata;
  metadata.set("a.bool", true);
  metadata.set("a.small", int64_t{7});
  metadata.set("a.negative", int64_t{-7});
  metadata.set("a.large", int64_t{1} << 40);
  metadata.set("a.unsigned", std::numeric_limits<uint64_t>::max());
  metadata.set("a.float", 0.5);
  metadata.set("a.double", 0.1);
  metadata.set("a.text", std::string("x\0y", 3));
  metadata.set("a.bools", std::vector<bool>{true, false, true});
  metadata.set("a.integers", std::vector<int64_t>{1, -2, 3});
  metadata.set("a.large_integers", std::vector<int64_t>{1, int64_t{1} << 40});
  metadata.set("a.floats", std::vector<double>{0.5, -10000});
  metadata.set("a.doubles", std::vector<double>{0.1});
  metadata.set("a.texts", std::vector<std::string>{"", "b"});
  return metadata;
}

TEST(GgufLayout, EveryKindOfValueComesBack) {
  const Metadata metadata = every_kind();
  const model_test::Bytes bytes = file_of(lay_out_gguf(metadata, {}));
  MemoryFile file("image", bytes);
  const auto read = parse_gguf(file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->metadata.values(), metadata.values());
}

TEST(GgufLayout, NumbersHaveTheTypesOfPublishedConverters) {
  const model_test::TemporaryFolder folder;
  const std::string path = folder.file("types.gguf");
  model_test::write_bytes(path, file_of(lay_out_gguf(every_kind(), {})));
  const model_test::GgufFile file = model_test::read_gguf(path);
  EXPECT_EQ(file.version, 3u);
  const auto value = [&](std::string_view key) {
    for (const auto& [name, raw] : file.keys)
      if (name == key) return raw;
    return model_test::RawValue{};
  };
  const auto element = [&](std::string_view key) {
    return std::to_integer<int>(value(key).bytes[0]);
  };
  const uint32_t u32 = 4, i32 = 5, f32 = 6, u64 = 10, i64 = 11, f64 = 12;
  EXPECT_EQ(value("a.small").type, u32);
  EXPECT_EQ(value("a.negative").type, i32);
  EXPECT_EQ(value("a.large").type, i64);
  EXPECT_EQ(value("a.unsigned").type, u64);
  EXPECT_EQ(value("a.float").type, f32);
  EXPECT_EQ(value("a.double").type, f64);
  EXPECT_EQ(element("a.integers"), 5);
  EXPECT_EQ(element("a.large_integers"), 11);
  EXPECT_EQ(element("a.floats"), 6);
  EXPECT_EQ(element("a.doubles"), 12);
}

TEST(GgufLayout, TensorsLieWhereItSays) {
  using kernels::TensorType;
  const GgufLayout layout =
      lay_out_gguf(every_kind(),
                   {tensor("one", TensorType::kF32, {3}), tensor("two", TensorType::kQ4_0, {64, 5}),
                    tensor("three", TensorType::kF16, {2, 3, 4})});
  EXPECT_EQ(layout.tensors[0].bytes, 12u);
  EXPECT_EQ(layout.tensors[1].bytes, 2u * 18 * 5);
  EXPECT_EQ(layout.tensors[2].bytes, 48u);
  EXPECT_EQ(layout.tensors[0].offset, layout.header.size());
  const model_test::Bytes bytes = file_of(layout);
  MemoryFile file("image", bytes);
  const auto read = parse_gguf(file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->tensors.size(), layout.tensors.size());
  for (size_t i = 0; i < layout.tensors.size(); i++) {
    const TensorInfo& written = layout.tensors[i];
    const TensorInfo& found = read->tensors[i];
    EXPECT_EQ(written.offset % kGgufAlignment, 0u);
    EXPECT_EQ(found.name, written.name);
    EXPECT_EQ(found.type, written.type);
    EXPECT_EQ(found.offset, written.offset);
    EXPECT_EQ(found.bytes, written.bytes);
    EXPECT_TRUE(std::ranges::equal(found.shape, written.shape));
  }
}

}  // namespace
}  // namespace model
