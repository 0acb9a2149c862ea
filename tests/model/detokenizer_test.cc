// Whole characters, the same text streamed or not, and one U+FFFD for each invalid sequence.
#include "model/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "model/utf8.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

std::string bad() {
  return std::string(kReplacementCharacter);
}

/// Token b is byte b.
Tokenizer bytes_tokenizer() {
  return model_test::make_tokenizer(model_test::byte_pair_vocabulary({}));
}

std::vector<int32_t> ids_of(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

/// What each push returned, then what finish() did.
std::vector<std::string> stream(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  StreamingDetokenizer detokenizer(tokenizer, {});
  std::vector<std::string> chunks;
  for (const int32_t id : ids) chunks.push_back(detokenizer.push(id));
  chunks.push_back(detokenizer.finish());
  return chunks;
}

std::string joined(const std::vector<std::string>& chunks) {
  std::string text;
  for (const std::string& chunk : chunks) text += chunk;
  return text;
}

TEST(RowG2, AnUnfinishedCharacterIsReplacedOnceAtTheEnd) {
  const Tokenizer tokenizer = bytes_tokenizer();
  const auto ids = ids_of("\xF0\x9F\x98");
  EXPECT_EQ(stream(tokenizer, ids), (std::vector<std::string>{"", "", "", bad()}));
}

TEST(RowG2, ACharacterOverFourTokensComesWhole) {
  const Tokenizer tokenizer = bytes_tokenizer();
  const auto ids = ids_of("\xF0\x9F\x98\x8A");
  EXPECT_EQ(stream(tokenizer, ids), (std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x8A", ""}));
}

TEST(RowG2, InvalidSequencesAreReplacedByMaximalSubpart) {
  const Tokenizer tokenizer = bytes_tokenizer();
  const std::string smile = "\xF0\x9F\x98\x8A";
  const struct {
    std::string bytes, text;
  } cases[] = {
      {"\xE0\x80\xAF", bad() + bad() + bad()},  // overlong: no byte continues E0 here
      {"\xED\xA0\x80", bad() + bad() + bad()},  // a surrogate
      {"\x80", bad()},                          // a continuation alone
      {"\xF0\x9F\x98" + smile, bad() + smile},  // cut short by a good character
      {"\xE2\x82"
       "A",
       bad() + "A"},                                        // likewise by a letter
      {"\xF4\x90\x80\x80", bad() + bad() + bad() + bad()},  // above U+10FFFF
      {"\xC0\x80", bad() + bad()},                          // overlong
      {"\xE2\x82\xE2\x82\xAC", bad() + "\xE2\x82\xAC"},
  };
  for (const auto& item : cases) {
    const std::string bytes = item.bytes + "z";
    EXPECT_EQ(detokenize(tokenizer, ids_of(bytes), {}), item.text + "z");
    EXPECT_EQ(joined(stream(tokenizer, ids_of(bytes))), item.text + "z");
  }
}

TEST(Utf8Repair, GivesTheSameTextHoweverTheBytesAreCut) {
  std::mt19937 random(7);
  // Bytes that matter for the decoder's branches more often than by chance.
  const std::string alphabet = "a\x80\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) bytes += alphabet[random() % alphabet.size()];
    Utf8Repair whole;
    std::string expected = whole.push(bytes);
    expected += whole.finish();
    ASSERT_EQ(valid_utf8_prefix(expected), expected.size());

    Utf8Repair parts;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = std::min<size_t>(1 + random() % 5, bytes.size() - at);
      const std::string chunk = parts.push(std::string_view(bytes).substr(at, length));
      ASSERT_EQ(valid_utf8_prefix(chunk), chunk.size());
      ASSERT_LE(parts.pending_bytes(), 3);
      text += chunk;
      at += length;
    }
    text += parts.finish();
    ASSERT_EQ(text, expected);
  }
}

TEST(Detokenizer, HidesControlTokensUnlessAsked) {
  const Tokenizer tokenizer = model_test::make_tokenizer(
      model_test::byte_pair_vocabulary({.extra = {{"<|im_end|>", 3}, {"<think>", 4}}}));
  const std::vector<int32_t> ids = {'a', 256, 257, 'b'};
  EXPECT_EQ(detokenize(tokenizer, ids, {}), "a<think>b");
  EXPECT_EQ(detokenize(tokenizer, ids, {.show_control = true}), "a<|im_end|><think>b");
}

TEST(Detokenizer, IgnoresIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = bytes_tokenizer();
  const std::vector<int32_t> ids = {'a', -1, 256, 1'000'000, 'b'};
  EXPECT_EQ(detokenize(tokenizer, ids, {}), "ab");
}

TEST(Detokenizer, TakesTheInventedBlankAwayOnlyFromWholeTexts) {
  const Tokenizer tokenizer =
      model_test::make_tokenizer(model_test::spm_vocabulary({.pieces = {"\xE2\x96\x81", "a"}}));
  const auto ids = tokenizer.encode("a", {});
  ASSERT_EQ(ids, (std::vector<int32_t>{259, 260}));
  EXPECT_EQ(detokenize(tokenizer, ids, {.whole_text = true}), "a");
  EXPECT_EQ(detokenize(tokenizer, ids, {}), " a");
}

}  // namespace
}  // namespace model
