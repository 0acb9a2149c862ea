// A file under its name is whole or absent: pieces in any order, and every way to fail.
#include "model/gguf_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/model/gguf_builder.h"

namespace model {
namespace {

using model_test::Bytes;

/// Two tensors: 1000 floats, and `rows` rows of 1000 floats.
GgufLayout layout_of(int64_t rows) {
  TensorInfo small, large;
  small.name = "small";
  small.shape[0] = 1000;
  large.name = "large";
  large.dimension_count = 2;
  large.shape[0] = 1000;
  large.shape[1] = rows;
  Metadata metadata;
  metadata.set("general.name", std::string("written"));
  return lay_out_gguf(metadata, {small, large});
}

Bytes pattern(size_t count, int seed) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; i++)
    bytes[i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed)) % 251);
  return bytes;
}

class GgufWriterTest : public testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(".")))
      names.push_back(entry.path().filename().string());
    return names;
  }
  base::Result<GgufWriter> create(bool replace = false) const {
    return GgufWriter::create(path_, layout_of(3), {.replace = replace});
  }
  static void write_all(const GgufWriter& writer) {
    ASSERT_TRUE(writer.write(0, 0, pattern(4000, 1)).ok());
    ASSERT_TRUE(writer.write(1, 0, pattern(12000, 2)).ok());
  }

  const model_test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("model.gguf");
};

TEST_F(GgufWriterTest, PiecesComeInAnyOrderFromAnyThread) {
  auto writer = create();
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const Bytes small = pattern(4000, 1), large = pattern(12000, 2);
  std::vector<std::thread> threads;
  for (int i = 3; i >= 0; i--)
    threads.emplace_back([&, i] {
      const auto at = static_cast<size_t>(i) * 3000;
      EXPECT_TRUE(writer->write(1, at, std::span(large).subspan(at, 3000)).ok());
    });
  EXPECT_TRUE(writer->write(0, 0, small).ok());
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(std::filesystem::exists(path_)) << "not whole yet";
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(names(), std::vector<std::string>{"model.gguf"});
  model_test::GgufFile file = model_test::read_gguf(path_);
  EXPECT_EQ(file.tensor("small").data, small);
  EXPECT_EQ(file.tensor("large").data, large);
  EXPECT_EQ(std::filesystem::file_size(path_), writer->layout().file_bytes);
}

TEST_F(GgufWriterTest, WithoutCommitNothingStays) {
  {
    auto writer = create();
    ASSERT_TRUE(writer.ok());
    write_all(*writer);
    EXPECT_EQ(names().size(), 1u) << "under another name";
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(GgufWriterTest, AnExistingFileStaysUnlessItIsReplacedByAWholeOne) {
  model_test::write_bytes(path_, pattern(10, 0));
  const auto refused = create();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, base::Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("model.gguf exists"), std::string::npos);
  { ASSERT_TRUE(create(true).ok()); }
  EXPECT_EQ(model_test::read_bytes(path_), pattern(10, 0)) << "an abandoned replacement";
  auto writer = create(true);
  ASSERT_TRUE(writer.ok());
  write_all(*writer);
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(model_test::read_gguf(path_).tensor("small").data, pattern(4000, 1));
  EXPECT_EQ(names(), std::vector<std::string>{"model.gguf"});
}

TEST_F(GgufWriterTest, AFileThatAppearsMeanwhileIsNotReplaced) {
  auto writer = create();
  ASSERT_TRUE(writer.ok());
  write_all(*writer);
  model_test::write_bytes(path_, pattern(10, 0));
  const auto status = writer->commit();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("meanwhile"), std::string::npos);
  EXPECT_EQ(model_test::read_bytes(path_), pattern(10, 0));
}

TEST_F(GgufWriterTest, WhatIsNoRegularFileIsNeverReplaced) {
  for (const std::string& path : {folder_.file("."), std::string("/dev/null")}) {
    const auto writer = GgufWriter::create(path, layout_of(3), {.replace = true});
    ASSERT_FALSE(writer.ok()) << path;
    EXPECT_EQ(writer.error().code, base::Code::kInvalidArgument);
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(GgufWriterTest, ALinkStaysALink) {
  const std::string link = folder_.file("link.gguf");
  model_test::write_bytes(path_, pattern(10, 0));
  std::filesystem::create_symlink(path_, link);
  auto writer = GgufWriter::create(link, layout_of(3), {.replace = true});
  ASSERT_TRUE(writer.ok());
  write_all(*writer);
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(model_test::read_gguf(path_).tensor("small").data, pattern(4000, 1));
}

TEST_F(GgufWriterTest, NoSpaceIsToldBeforeAnythingIsWritten) {
  const GgufLayout layout = layout_of(int64_t{1} << 40);
  const auto writer = GgufWriter::create(path_, layout, {});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, base::Code::kNoSpace);
  const std::string& message = writer.error().message;
  EXPECT_NE(message.find(std::to_string(layout.file_bytes)), std::string::npos) << message;
  const auto free = std::filesystem::space(folder_.file(".")).available;
  // Others write too, so only the size of the number is sure.
  EXPECT_NE(message.find(std::to_string(free / 1'000'000'000)), std::string::npos) << message;
  EXPECT_TRUE(names().empty());
}

TEST_F(GgufWriterTest, AFileThatTheSystemRefusesLeavesNothing) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 8000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto writer = create();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, base::Code::kSystem);
  EXPECT_NE(writer.error().message.find("File too large"), std::string::npos)
      << writer.error().message;
  EXPECT_TRUE(names().empty());
}

TEST_F(GgufWriterTest, AMissingFolderIsNamed) {
  const auto writer = GgufWriter::create(folder_.file("none/model.gguf"), layout_of(3), {});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, base::Code::kSystem);
  EXPECT_NE(writer.error().message.find("none/model.gguf"), std::string::npos);
}

TEST_F(GgufWriterTest, AHoleIsOurBug) {
  auto writer = create();
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->write(0, 0, pattern(4000, 1)).ok());
  EXPECT_DEATH((void)writer->commit(), "were written");
  EXPECT_DEATH((void)writer->write(1, 0, pattern(12001, 1)), "beyond the end");
}

}  // namespace
}  // namespace model
