#include "model/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/cat.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using base::cat;
using model::Directory;

base::Result<Directory> parse(const GgufFile& file) {
  const Bytes bytes = file.image().bytes;
  model::MemoryFile reader("image.gguf", bytes);
  return model::parse_gguf(reader);
}

std::string error_of(const base::Result<Directory>& result) {
  return result.ok() ? "no error" : result.error().message;
}

/// Counts reads and remembers how far they went.
class CountingFile final : public model::FileReader {
 public:
  explicit CountingFile(std::span<const std::byte> bytes) : file_("image.gguf", bytes) {}

  const std::string& name() const override { return file_.name(); }
  uint64_t size() const override { return file_.size(); }
  base::Status read(uint64_t offset, std::span<std::byte> out) override {
    ++reads;
    end = std::max(end, offset + out.size());
    return file_.read(offset, out);
  }

  int reads = 0;
  uint64_t end = 0;

 private:
  model::MemoryFile file_;
};

/// A file whose reads fail.
class FailingFile final : public model::FileReader {
 public:
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return 1000; }
  base::Status read(uint64_t, std::span<std::byte>) override {
    return base::Error{base::Code::kSystem, "cannot read the file: Input/output error"};
  }

 private:
  std::string name_ = "failing.gguf";
};

TEST(Gguf, ReadsEveryValueTypeInVersions2And3) {
  for (const uint32_t version : {2u, 3u}) {
    GgufFile file;
    file.version = version;
    file.set("u8", u8(200));
    file.set("i8", i8(-100));
    file.set("u16", u16(60000));
    file.set("i16", i16(-30000));
    file.set("u32", u32(4000000000));
    file.set("i32", i32(-2000000000));
    file.set("u64", u64(5000000000));
    file.set("u64 large", u64(~uint64_t{0}));
    file.set("i64", i64(-5000000000));
    file.set("f32", f32(0.25F));
    file.set("f64", f64(1e300));
    file.set("bool", boolean(true));
    file.set("text", text("ab"));
    file.set("empty text", text(""));
    const auto directory = parse(file);
    ASSERT_TRUE(directory.ok()) << error_of(directory);
    const auto& values = directory->metadata.values();
    EXPECT_EQ(values.size(), 14U);
    EXPECT_EQ(values.at("u8"), model::Value(int64_t{200}));
    EXPECT_EQ(values.at("i8"), model::Value(int64_t{-100}));
    EXPECT_EQ(values.at("u16"), model::Value(int64_t{60000}));
    EXPECT_EQ(values.at("i16"), model::Value(int64_t{-30000}));
    EXPECT_EQ(values.at("u32"), model::Value(int64_t{4000000000}));
    EXPECT_EQ(values.at("i32"), model::Value(int64_t{-2000000000}));
    EXPECT_EQ(values.at("u64"), model::Value(int64_t{5000000000}));
    EXPECT_EQ(values.at("u64 large"), model::Value(~uint64_t{0}));
    EXPECT_EQ(values.at("i64"), model::Value(int64_t{-5000000000}));
    EXPECT_EQ(values.at("f32"), model::Value(0.25));
    EXPECT_EQ(values.at("f64"), model::Value(1e300));
    EXPECT_EQ(values.at("bool"), model::Value(true));
    EXPECT_EQ(values.at("text"), model::Value(std::string("ab")));
    EXPECT_EQ(values.at("empty text"), model::Value(std::string()));
  }
}

TEST(Gguf, ReadsArraysOfEveryType) {
  const std::vector<int64_t> integers = {1, 2, 3};
  GgufFile file;
  file.set("u8", array({u8(1), u8(2), u8(3)}));
  file.set("i8", array({i8(1), i8(2), i8(3)}));
  file.set("u16", array({u16(1), u16(2), u16(3)}));
  file.set("i16", array({i16(1), i16(2), i16(3)}));
  file.set("u32", array({u32(1), u32(2), u32(3)}));
  file.set("i32", array({i32(1), i32(2), i32(3)}));
  file.set("u64", array({u64(1), u64(2), u64(3)}));
  file.set("i64", array({i64(1), i64(2), i64(3)}));
  file.set("f32", array({f32(0.5F), f32(-1)}));
  file.set("f64", array({f64(0.5), f64(-1)}));
  file.set("bool", array({boolean(true), boolean(false)}));
  file.set("texts", texts({"a", "", "ccc"}));
  file.set("none", texts({}));
  const auto directory = parse(file);
  ASSERT_TRUE(directory.ok()) << error_of(directory);
  const model::Metadata& metadata = directory->metadata;
  for (const char* key : {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"}) {
    ASSERT_NE(metadata.integers(key), nullptr) << key;
    EXPECT_EQ(*metadata.integers(key), integers) << key;
  }
  EXPECT_EQ(*metadata.numbers("f32"), (std::vector<double>{0.5, -1}));
  EXPECT_EQ(*metadata.numbers("f64"), (std::vector<double>{0.5, -1}));
  EXPECT_EQ(metadata.values().at("bool"), model::Value(std::vector<bool>{true, false}));
  EXPECT_EQ(*metadata.strings("texts"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_TRUE(metadata.strings("none")->empty());
}

TEST(Gguf, LocatesTensorsOfAllDimensions) {
  GgufFile file;
  file.set("filler", text("any"));
  file.add_f32("one", {5});
  file.add_f32("two", {3, 4});
  file.add_f32("three", {2, 3, 4});
  file.add_f32("four", {2, 1, 3, 2});
  const Image image = file.image();
  const auto directory = parse(file);
  ASSERT_TRUE(directory.ok()) << error_of(directory);
  ASSERT_EQ(directory->tensors.size(), 4U);
  EXPECT_EQ(directory->find("absent"), nullptr);
  for (FileTensor& written : file.tensors) {
    const model::TensorInfo* read = directory->find(written.name);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->dimension_count, static_cast<int>(written.shape.size()));
    int64_t rows = 1;
    for (size_t i = 0; i < 4; ++i) {
      const int64_t length = i < written.shape.size() ? static_cast<int64_t>(written.shape[i]) : 1;
      EXPECT_EQ(read->shape[i], length);
      if (i > 0) rows *= length;
    }
    EXPECT_EQ(read->row_count(), rows);
    EXPECT_EQ(read->bytes, written.data.size());
    const auto where =
        std::ranges::find(image.boundaries, "padding before " + written.name, &Boundary::after);
    ASSERT_NE(where, image.boundaries.end());
    EXPECT_EQ(read->offset, where->offset);
  }
}

// Row A1: every offset follows the declared alignment, whatever the header's length.
TEST(Gguf, HonoursTheDeclaredAlignment) {
  for (const uint32_t alignment : {8u, 16u, 32u, 64u, 4096u}) {
    for (size_t filler = 0; filler < 64; filler += 8) {
      GgufFile file = tiny_model("llama");
      file.set("filler", text(std::string(filler, 'x')));
      file.align(alignment);
      const Image image = file.image();
      model::MemoryFile reader("image.gguf", image.bytes);
      const auto directory = model::parse_gguf(reader);
      ASSERT_TRUE(directory.ok()) << error_of(directory);
      for (const model::TensorInfo& tensor : directory->tensors) {
        const auto where =
            std::ranges::find(image.boundaries, "padding before " + tensor.name, &Boundary::after);
        ASSERT_NE(where, image.boundaries.end());
        ASSERT_EQ(tensor.offset, where->offset) << tensor.name << " at alignment " << alignment;
      }
    }
  }
}

TEST(Gguf, TakesTheAlignmentFromAnyIntegerType) {
  for (const RawValue& value : {u8(64), i16(64), i32(64), u64(64), i64(64)}) {
    GgufFile file = tiny_model("llama");
    file.alignment = 64;
    file.set("general.alignment", value);
    const auto directory = parse(file);
    ASSERT_TRUE(directory.ok()) << error_of(directory);
    for (const model::TensorInfo& tensor : directory->tensors) EXPECT_EQ(tensor.offset % 64, 0U);
  }
}

TEST(Gguf, RefusesAlignmentsThatAreNone) {
  const std::pair<RawValue, std::string> cases[] = {
      {u32(0), "'general.alignment' is 0,"},
      {u32(1), "'general.alignment' is 1,"},
      {u32(24), "'general.alignment' is 24,"},
      {u32(0xffffffff), "'general.alignment' is 4294967295,"},
      {i32(-32), "'general.alignment' is -32,"},
      {u64(~uint64_t{0}), "'general.alignment' is 18446744073709551615,"},
      {f32(32), "'general.alignment' is a floating-point number, not an integer"},
      {text("32"), "'general.alignment' is a string, not an integer"},
  };
  for (const auto& [value, message] : cases) {
    GgufFile file = tiny_model("llama");
    file.set("general.alignment", value);
    EXPECT_NE(error_of(parse(file)).find(message), std::string::npos) << error_of(parse(file));
  }
}

TEST(Gguf, ReadsLargeArraysInFewReads) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 150'000; ++i) tokens.push_back(cat("token ", i));
  GgufFile file = tiny_model("qwen3moe");
  file.set("tokenizer.ggml.tokens", texts(tokens));
  const Image image = file.image();
  CountingFile reader(image.bytes);
  const auto directory = model::parse_gguf(reader);
  ASSERT_TRUE(directory.ok()) << error_of(directory);
  EXPECT_EQ(*directory->metadata.strings("tokenizer.ggml.tokens"), tokens);
  EXPECT_LE(reader.reads, 20);  // 3 MB through a window of 256 KiB
}

TEST(Gguf, ReadsNoTensorDataBeyondTheHeadersLastWindow) {
  GgufFile file = tiny_model("llama");
  file.add_f32("large", {1024, 4096});
  const Image image = file.image();
  CountingFile reader(image.bytes);
  ASSERT_TRUE(model::parse_gguf(reader).ok());
  EXPECT_LE(reader.end, 256U << 10);
  EXPECT_GT(image.bytes.size(), 16U << 20);
}

TEST(Gguf, ReadsAHeaderWithoutTheDataBehindIt) {
  const GgufFile whole = tiny_model("qwen3moe");
  GgufFile cut = whole;
  cut.tensors.back().data.clear();
  EXPECT_NE(error_of(parse(cut)).find("incomplete download"), std::string::npos);
  const Bytes bytes = cut.image().bytes;
  model::MemoryFile reader("image.gguf", bytes);
  const auto directory = model::parse_gguf(reader, model::Extent::kHeader);
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  const auto expected = parse(whole);
  ASSERT_EQ(directory->tensors.size(), expected->tensors.size());
  EXPECT_EQ(directory->tensors.back().bytes, expected->tensors.back().bytes);
}

TEST(Gguf, ReportsAFailingReadWithTheFilesName) {
  FailingFile file;
  EXPECT_EQ(error_of(model::parse_gguf(file)),
            "failing.gguf: cannot read the file: Input/output error");
}

TEST(Gguf, ReadsWhatTheWriterTookApart) {
  const std::string path = golden_model("qwen3moe-q4_k.gguf");
  const GgufFile file = read_gguf(path);
  const auto original = model::read_directory(path);
  const auto again = parse(file);
  ASSERT_TRUE(original.ok()) << error_of(original);
  ASSERT_TRUE(again.ok()) << error_of(again);
  EXPECT_EQ(again->metadata.values(), original->metadata.values());
  ASSERT_EQ(again->tensors.size(), original->tensors.size());
  const Bytes original_bytes = read_bytes(path);
  const Bytes bytes = file.image().bytes;
  for (size_t i = 0; i < again->tensors.size(); ++i) {
    const model::TensorInfo& a = original->tensors[i];
    const model::TensorInfo& b = again->tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.type, b.type);
    ASSERT_EQ(a.bytes, b.bytes);
    EXPECT_TRUE(std::equal(bytes.begin() + static_cast<ptrdiff_t>(b.offset),
                           bytes.begin() + static_cast<ptrdiff_t>(b.offset + b.bytes),
                           original_bytes.begin() + static_cast<ptrdiff_t>(a.offset)));
  }
}

TEST(PosixFile, RefusesWhatIsNoRegularFile) {
  const auto missing = model::read_directory("/nonexistent/model.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, base::Code::kNotFound);
  EXPECT_EQ(missing.error().message,
            "/nonexistent/model.gguf: cannot open the file: No such file or directory");
  const auto folder = model::read_directory(NUMOE_SOURCE_DIR);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(folder.error().message.find("is not a regular file"), std::string::npos);
}

TEST(PosixFile, IdentifiesItsContent) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.gguf");
  write_bytes(path, tiny_model("olmoe").image().bytes);
  const auto directory = model::read_directory(path);
  ASSERT_TRUE(directory.ok()) << error_of(directory);
  ASSERT_EQ(directory->files.size(), 1U);
  const model::SourceFile& source = directory->files[0];
  EXPECT_EQ(source.path, path);
  EXPECT_EQ(source.bytes, read_bytes(path).size());
  EXPECT_NE(source.inode, 0U);
  EXPECT_GT(source.mtime_ns, 1'600'000'000'000'000'000);
}

TEST(PosixFile, ReportsAFileThatBecameShorter) {
  const TemporaryFolder folder;
  const std::string path = folder.file("short.gguf");
  write_bytes(path, Bytes(100));
  auto file = model::PosixFile::open(path);
  ASSERT_TRUE(file.ok());
  write_bytes(path, Bytes(10));
  Bytes out(100);
  const auto status = file->read(0, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, base::Code::kBrokenFile);
}

}  // namespace
}  // namespace model_test
