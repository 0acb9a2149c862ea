// Models in several files.
#include <gtest/gtest.h>

#include "base/cat.h"
#include "model/model.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/tiny_model.h"

namespace model_test {
namespace {

using base::cat;

class SplitTest : public testing::Test {
 protected:
  /// A tiny model in three parts, its metadata in the first.
  SplitTest() {
    const GgufFile whole = tiny_model("qwen3moe");
    parts_[0].keys = whole.keys;
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      parts_[i * 3 / whole.tensors.size()].tensors.push_back(whole.tensors[i]);
    }
    for (size_t i = 0; i < 3; ++i) {
      parts_[i].set("split.no", u16(static_cast<uint16_t>(i)));
      parts_[i].set("split.count", u16(3));
      parts_[i].set("split.tensors.count", i32(static_cast<int32_t>(whole.tensors.size())));
    }
  }

  std::string path(int part) const {
    return folder_.file(cat("m-0000", part + 1, "-of-00003.gguf"));
  }
  void write(int part) { write_bytes(path(part), parts_[static_cast<size_t>(part)].image().bytes); }
  base::Result<model::Model> load() {
    for (int i = 0; i < 3; ++i) write(i);
    return model::load_model(path(0));
  }
  void expect_error(const base::Result<model::Model>& result, int part, const std::string& text) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message, cat(path(part), ": ", text));
  }

  TemporaryFolder folder_;
  GgufFile parts_[3];
};

TEST_F(SplitTest, ReadsAllPartsByTheFirst) {
  const auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->directory->files.size(), 3U);
  EXPECT_EQ(model->directory->files[2].path, path(2));
  EXPECT_EQ(model->directory->tensors.size(), tiny_model("qwen3moe").tensors.size());
  EXPECT_EQ(model->token_embedding->file_index, 0);
  EXPECT_EQ(model->blocks[1].down->file_index, 2);
}

TEST_F(SplitTest, AcceptsEveryIntegerTypeAndItsOwnAlignmentPerPart) {
  parts_[0].set("split.no", u8(0));
  parts_[1].set("split.no", i64(1));
  parts_[2].set("split.count", u64(3));
  parts_[1].set("split.tensors.count", u64(tiny_model("qwen3moe").tensors.size()));
  parts_[1].align(256);
  const auto model = load();
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const model::TensorInfo& tensor : model->directory->tensors) {
    if (tensor.file_index == 1) {
      EXPECT_EQ(tensor.offset % 256, 0U);
    }
  }
}

TEST_F(SplitTest, NamesAMissingPart) {
  write(0);
  write(2);
  const auto result = model::load_model(path(0));
  expect_error(result, 1, "part 2 of 3 is missing; put all parts into one folder");
  EXPECT_EQ(result.error().code, base::Code::kNotFound);
}

TEST_F(SplitTest, AsksForTheFirstPart) {
  ASSERT_TRUE(load().ok());
  const auto result = model::load_model(path(1));
  expect_error(result, 1,
               "is part 2 of 3; give the first part, whose name ends in -00001-of-00003.gguf");
}

TEST_F(SplitTest, RefusesPartsInTheWrongOrder) {
  std::swap(parts_[1], parts_[2]);
  expect_error(load(), 1, "'split.no' and 'split.count' make it part 3 of 3, its name part 2 of 3");
}

TEST_F(SplitTest, RefusesAPartOfAnotherSplit) {
  parts_[2].set("split.count", u16(4));
  expect_error(load(), 2, "'split.no' and 'split.count' make it part 3 of 4, its name part 3 of 3");
}

TEST_F(SplitTest, RefusesAPartWithoutSplitKeys) {
  parts_[1].erase("split.count");
  expect_error(load(), 1, "'split.no' and 'split.count' make it part 1 of 1, its name part 2 of 3");
}

TEST_F(SplitTest, RefusesATensorInTwoParts) {
  parts_[2].tensors.push_back(parts_[0].tensors[0]);
  expect_error(load(), 2, cat("tensor 'token_embd.weight' is also in ", path(0)));
}

TEST_F(SplitTest, RefusesAWrongTotalOfTensors) {
  parts_[2].tensors.pop_back();
  expect_error(load(), 0, "metadata key 'split.tensors.count' is 27 but the parts have 26 tensors");
}

TEST_F(SplitTest, RefusesTotalsThatDiffer) {
  parts_[1].set("split.tensors.count", i32(26));
  expect_error(load(), 1, "metadata key 'split.tensors.count' is 26, in the first part 27");
}

TEST_F(SplitTest, RefusesANumberThatIsNoPart) {
  parts_[0].set("split.no", u16(3));
  expect_error(load(), 0, "metadata key 'split.no' is 3, not between 0 and 2");
}

TEST_F(SplitTest, RefusesANegativeCount) {
  parts_[0].set("split.count", i32(-1));
  expect_error(load(), 0, "metadata key 'split.count' is -1, not between 0 and 99999");
}

TEST_F(SplitTest, ReportsABrokenPartWithItsName) {
  parts_[1].magic = "XXXX";
  expect_error(load(), 1, "is not a GGUF file: it starts with 'XXXX'");
}

TEST_F(SplitTest, RefusesAFirstPartWithAnotherName) {
  const std::string renamed = folder_.file("renamed.gguf");
  write_bytes(renamed, parts_[0].image().bytes);
  const auto result = model::load_model(renamed);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("its name does not end in -00001-of-00003.gguf"),
            std::string::npos);
}

TEST_F(SplitTest, ASingleFileMayCallItselfASplitOfOne) {
  GgufFile file = tiny_model("llama");
  file.set("split.no", u16(0));
  file.set("split.count", u16(1));
  const std::string path = folder_.file("any name");
  write_bytes(path, file.image().bytes);
  EXPECT_TRUE(model::load_model(path).ok());
}

}  // namespace
}  // namespace model_test
