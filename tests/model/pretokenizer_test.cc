// Pieces of each type's patterns, compiled and interpreted.
#include "model/pretokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "model/pretokenizer_types.h"
#include "model/utf8.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using Pieces = std::vector<std::string_view>;

Pretokenizer make(std::string_view type, PretokenizerOptions options = {}) {
  auto result = Pretokenizer::create(find_pretokenizer_type(type)->patterns, options);
  CHECK(result.ok(), result.error().message);
  return std::move(*result);
}

Pieces split(const Pretokenizer& pretokenizer, std::string_view text) {
  Pieces pieces;
  EncodeWork work;
  pretokenizer.split(text, pieces, work);
  return pieces;
}

constexpr std::string_view kTypeNames[] = {
    "gpt-2",       "qwen2",     "llama-bpe", "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "starcoder", "refact",    "falcon",       "mpt",
    "tekken",      "gpt-4o",    "qwen35",    "glm4",         "kimi-k2"};

TEST(Pretokenizer, CutsWordsNumbersAndBlanksAsEachTypeSays) {
  const std::string_view text = "It's  12345 HelloWORLD!\n\n x";
  const struct {
    std::string_view type;
    Pieces pieces;
  } cases[] = {
      {"gpt-2", {"It", "'s", " ", " 12345", " HelloWORLD", "!", "\n\n", " x"}},
      {"qwen2", {"It", "'s", " ", " ", "1", "2", "3", "4", "5", " HelloWORLD", "!\n\n", " x"}},
      {"llama-bpe", {"It", "'s", " ", " ", "123", "45", " HelloWORLD", "!\n\n", " x"}},
      {"falcon", {"It", "'", "s", " ", " ", "123", "45", " HelloWORLD", "!", "\n\n", " x"}},
      {"starcoder", {"It", "'s", "  ", "1", "2", "3", "4", "5", " HelloWORLD", "!", "\n\n", " x"}},
      {"tekken", {"It", "'s", " ", " ", "1", "2", "3", "4", "5", " Hello", "WORLD", "!\n\n", " x"}},
      {"gpt-4o", {"It's", " ", " ", "123", "45", " Hello", "WORLD", "!\n\n", " x"}},
      {"kimi-k2", {"It's", " ", " ", "123", "45", " Hello", "WORLD", "!\n\n", " x"}},
      {"deepseek-v3", {"It", "'s", "  ", "123", "45", " HelloWORLD", "!\n\n", " x"}},
  };
  for (const auto& item : cases) EXPECT_EQ(split(make(item.type), text), item.pieces) << item.type;
}

TEST(Pretokenizer, BlanksAreUnicodeWhiteSpace) {
  // U+0085 and U+3000 are white space, U+180E and U+200B are not.
  const Pretokenizer pretokenizer = make("gpt-2");
  EXPECT_EQ(split(pretokenizer, "a\xC2\x85\xE3\x80\x80"), (Pieces{"a", "\xC2\x85\xE3\x80\x80"}));
  EXPECT_EQ(split(pretokenizer, "a \xE1\xA0\x8E"), (Pieces{"a", " \xE1\xA0\x8E"}));
  EXPECT_EQ(split(pretokenizer, "a \xE2\x80\x8B"), (Pieces{"a", " \xE2\x80\x8B"}));
}

// Runs of Han characters stand alone; other letters without case, and marks, belong to words.
TEST(Pretokenizer, KimiK2CutsHanCharactersFromWords) {
  const std::string_view text = "ab\xE4\xB8\xAD\xE6\x96\x87 Cd\xE3\x81\x82\xCC\x81";
  EXPECT_EQ(split(make("kimi-k2"), text),
            (Pieces{"ab", "\xE4\xB8\xAD\xE6\x96\x87", " Cd\xE3\x81\x82\xCC\x81"}));
  EXPECT_EQ(split(make("gpt-4o"), text),
            (Pieces{"ab\xE4\xB8\xAD\xE6\x96\x87", " Cd\xE3\x81\x82\xCC\x81"}));
}

TEST(Pretokenizer, EmptyTextHasNoPieces) {
  EXPECT_TRUE(split(make("qwen2"), "").empty());
}

TEST(Pretokenizer, ABrokenPatternIsAnError) {
  const std::string_view patterns[] = {"a", "(b"};
  const auto result = Pretokenizer::create(patterns);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, base::Code::kUnsupported);
}

class EachType : public testing::TestWithParam<std::string_view> {
 protected:
  /// The pieces are the text, and the interpreter finds the same ones.
  void check(std::string_view text) {
    const Pieces pieces = split(compiled_, text);
    std::string joined;
    for (const std::string_view piece : pieces) {
      ASSERT_FALSE(piece.empty());
      joined += piece;
    }
    ASSERT_TRUE(joined == text);
    ASSERT_TRUE(split(interpreted_, text) == pieces);
  }

 private:
  Pretokenizer compiled_ = make(GetParam());
  Pretokenizer interpreted_ = make(GetParam(), {.compile_to_machine_code = false});
};

TEST_P(EachType, LongRunsAreCutAlikeWithoutMachineCode) {
  for (const model_test::LongRun& run : model_test::long_runs(1)) check(run.text);
}

TEST_P(EachType, RandomTextIsCutAlikeWithoutMachineCode) {
  std::mt19937 random(3);
  const std::string_view parts[] = {" ",
                                    "  ",
                                    "\n",
                                    "\r\n",
                                    "\t",
                                    "a",
                                    "Zz",
                                    "'s",
                                    "'LL",
                                    "1",
                                    "23",
                                    "!",
                                    "_",
                                    "/",
                                    "+",
                                    "\xC3\xA9",
                                    "a\xCC\x81",
                                    "\xE5\xAD\x97",
                                    "\xE3\x81\x82",
                                    "\xED\x95\x9C",
                                    "\xF0\x9F\x99\x82",
                                    "\xC2\xA0",
                                    "\xE2\x80\x9C",
                                    "\xC2\xB2"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t i = 0, count = random() % 20; i < count; ++i) {
      text += parts[random() % std::size(parts)];
    }
    check(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EachType, testing::ValuesIn(kTypeNames), [](const auto& info) {
  std::string name(info.param);
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace model
