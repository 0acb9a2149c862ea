// Ids of published vocabularies, equal to what the established engines give.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "base/cat.h"
#include "model/model.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using model_test::GoldenCase;

/// The golden folder in the repository if it has the file, else the full set beside it.
std::string find_golden(const std::string& file) {
  const std::string own = model_test::golden_tokenizer_folder() + "/" + file;
  if (model_test::file_exists(own)) return own;
  return model_test::shared_golden_folder() + "/tokenizers/" + file;
}

Tokenizer load(const std::string& path) {
  const auto directory = read_directory(path);
  CHECK(directory.ok(), directory.error().message);
  return model_test::make_tokenizer(directory->metadata);
}

class PublishedVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(PublishedVocabulary, GivesTheGoldenIds) {
  const std::string path = find_golden(base::cat("ggml-vocab-", GetParam(), ".gguf"));
  if (!model_test::file_exists(path)) GTEST_SKIP() << path << " is not here";
  const Tokenizer tokenizer = load(path);
  const auto cases = model_test::read_golden_cases(path + ".inp", path + ".out");
  ASSERT_GT(cases.size(), 40u);
  for (const GoldenCase& item : cases) {
    EXPECT_EQ(tokenizer.encode(item.text, {}), item.ids) << "text: '" << item.text << "'";
    EXPECT_EQ(tokenizer.decode(item.ids), item.text);
  }
}

constexpr const char* kPublished[] = {"gpt-2",  "deepseek-coder", "deepseek-llm", "falcon", "mpt",
                                      "refact", "starcoder",      "llama-spm",    "phi-3"};
INSTANTIATE_TEST_SUITE_P(Golden, PublishedVocabulary, testing::ValuesIn(kPublished),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

struct TinyCase {
  const char* name;
  const char* vocabulary;
  const char* input;
  const char* output;
  bool parse_special;
  bool add_bos;
};

class TinyVocabulary : public testing::TestWithParam<TinyCase> {};

TEST_P(TinyVocabulary, GivesTheGoldenIds) {
  const TinyCase& tiny = GetParam();
  const Tokenizer tokenizer = load(find_golden(tiny.vocabulary));
  const auto cases =
      model_test::read_golden_cases(find_golden(tiny.input), find_golden(tiny.output));
  ASSERT_GE(cases.size(), 10u);
  for (const GoldenCase& item : cases) {
    const EncodeOptions options = {.parse_special = tiny.parse_special, .add_bos = tiny.add_bos};
    std::vector<int32_t> expected = item.ids;
    // Where the text itself begins with BOS those engines write it twice; models were trained with
    // one, so this is the one place where the ids differ on purpose.
    if (tiny.add_bos && expected.size() > 1 && expected[0] == expected[1]) {
      expected.erase(expected.begin());
    }
    EXPECT_EQ(tokenizer.encode(item.text, options), expected) << "text: '" << item.text << "'";
  }
}

constexpr TinyCase kTiny[] = {
    {"bpe_plain", "tiny-bpe.gguf", "tiny-plain.inp", "tiny-bpe-plain.out", false, false},
    {"bpe_literal", "tiny-bpe.gguf", "tiny-special.inp", "tiny-bpe-literal.out", false, false},
    {"bpe_special", "tiny-bpe.gguf", "tiny-special.inp", "tiny-bpe-special.out", true, false},
    {"spm_plain", "tiny-spm.gguf", "tiny-plain.inp", "tiny-spm-plain.out", false, false},
    {"spm_literal", "tiny-spm.gguf", "tiny-special.inp", "tiny-spm-literal.out", false, false},
    {"spm_special", "tiny-spm.gguf", "tiny-special.inp", "tiny-spm-special.out", true, false},
    {"spm_special_bos", "tiny-spm.gguf", "tiny-special.inp", "tiny-spm-special-bos.out", true,
     true}};
INSTANTIATE_TEST_SUITE_P(Golden, TinyVocabulary, testing::ValuesIn(kTiny),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Golden, EveryFileOfTheFullSetIsAsked) {
  const std::string folder = model_test::shared_golden_folder() + "/tokenizers";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << folder << " is not here";
  std::set<std::string> asked;
  for (const std::string name : kPublished) asked.insert("ggml-vocab-" + name + ".gguf.out");
  for (const TinyCase& tiny : kTiny) asked.insert(tiny.output);
  size_t vectors = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".out")) continue;
    EXPECT_TRUE(asked.contains(name)) << name;
    std::ifstream lines(entry.path());
    vectors += static_cast<size_t>(std::count(std::istreambuf_iterator<char>(lines), {}, '\n'));
  }
  RecordProperty("vectors", static_cast<int>(vectors));
  std::cout << vectors << " vectors in " << asked.size() << " files\n";
  EXPECT_GT(vectors, 400u);
}

}  // namespace
}  // namespace model
