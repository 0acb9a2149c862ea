// Any text has ids and comes back: long runs that overflow other engines, random text, random
// bytes.
#include <gtest/gtest.h>

#include <random>

#include "model/tokenizer.h"
#include "model/utf8.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using model_test::byte_pair_vocabulary;
using model_test::make_tokenizer;
using model_test::spm_vocabulary;
using Ids = std::vector<int32_t>;

constexpr const char* kTypeNames[] = {
    "gpt-2",  "qwen2",  "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3", "starcoder",
    "refact", "falcon", "mpt",       "tekken",       "gpt-4o",         "qwen35",      "glm4"};

/// Merges that build long tokens out of the characters of the long runs.
const std::vector<std::string> kRunMerges = {
    "Z Z",   "ZZ ZZ", "ZZZZ ZZZZ", "9 9",     "99 9", "Ċ Ċ", "ĊĊ ĊĊ", "Ġ Ġ",
    "ĠĠ ĠĠ", "å Ń",   "åŃ Ĺ",      "åŃĹ åŃĹ", "Ġ x",  "Ì ģ", "a Ìģ",  "aÌģ aÌģ"};

// --- B1: one long run of a single character class ---

class RowB1 : public testing::TestWithParam<const char*> {};

TEST_P(RowB1, LongRunsHaveIdsThatSpellThem) {
  const Tokenizer tokenizer =
      make_tokenizer(byte_pair_vocabulary({.pre = GetParam(), .merges = kRunMerges}));
  for (const model_test::LongRun& run : model_test::long_runs(1)) {
    const Ids ids = tokenizer.encode(run.text, {});
    EXPECT_TRUE(tokenizer.decode(ids) == run.text) << run.name;
    EXPECT_LE(ids.size(), run.text.size()) << run.name;
  }
}

TEST_P(RowB1, TwiceTheTextIsAtMostTwoAndAHalfTimesTheWork) {
  const Tokenizer tokenizer =
      make_tokenizer(byte_pair_vocabulary({.pre = GetParam(), .merges = kRunMerges}));
  const auto once = model_test::long_runs(1);
  const auto twice = model_test::long_runs(2);
  for (size_t i = 0; i < once.size(); ++i) {
    EncodeWork work_once, work_twice;
    tokenizer.encode(once[i].text, {.work = &work_once});
    tokenizer.encode(twice[i].text, {.work = &work_twice});
    const auto total = [](const EncodeWork& work) {
      return work.matches + work.matched_bytes + work.merge_steps;
    };
    EXPECT_LE(2 * total(work_twice), 5 * total(work_once)) << once[i].name;
    EXPECT_GE(total(work_twice), total(work_once)) << once[i].name;
    // Each merge step takes one candidate, and a merge adds at most two.
    EXPECT_LE(work_once.merge_steps, 3 * static_cast<int64_t>(once[i].text.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowB1, testing::ValuesIn(kTypeNames), [](const auto& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
});

TEST(RowB1, SentencePieceToo) {
  const Tokenizer tokenizer = make_tokenizer(spm_vocabulary(
      {.pieces = {"\xE2\x96\x81", "Z", "ZZ", "ZZZZ", "9", "99", "\xE2\x96\x81\xE2\x96\x81"}}));
  const auto once = model_test::long_runs(1);
  const auto twice = model_test::long_runs(2);
  for (size_t i = 0; i < once.size(); ++i) {
    EncodeWork work_once, work_twice;
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode(once[i].text, {.work = &work_once})) ==
                once[i].text);
    tokenizer.encode(twice[i].text, {.work = &work_twice});
    EXPECT_LE(2 * work_twice.merge_steps, 5 * work_once.merge_steps) << once[i].name;
  }
}

// --- any text comes back ---

std::string random_text(std::mt19937& random, bool valid) {
  const auto pick = [&random](char32_t first, uint32_t count) {
    return first + static_cast<char32_t>(random() % count);
  };
  std::string text;
  const int length = static_cast<int>(random() % 60);
  for (int i = 0; i < length; ++i) {
    if (!valid && random() % 3 == 0) {
      text += static_cast<char>(random() % 256);
      continue;
    }
    switch (random() % 6) {
      case 0: text += " \n\r\t'"[random() % 5]; break;
      case 1: text += static_cast<char>('!' + random() % 94); break;
      case 2: append_utf8(pick(0xA0, 0x700), text); break;
      case 3: append_utf8(pick(0x2000, 0x1000), text); break;
      case 4: append_utf8(pick(0x4E00, 0x5200), text); break;
      default: append_utf8(pick(0x1F000, 0x10000), text); break;
    }
  }
  return text;
}

class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, DecodeOfEncodeIsTheText) {
  const bool spm = GetParam() == std::string("spm");
  const Tokenizer tokenizer = make_tokenizer(
      spm ? spm_vocabulary({.pieces = {"\xE2\x96\x81", "a",
                                       "\xE2\x96\x81"
                                       "a",
                                       "'s", "\xC3\xA9"},
                            .extra = {{"<u>", 4}}})
          : byte_pair_vocabulary({.pre = GetParam(), .merges = kRunMerges, .extra = {{"<u>", 4}}}));
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text = random_text(random, round % 2 == 0);
    if (round % 7 == 0) text += "<u>" + random_text(random, true);
    if (spm && text.find("\xE2\x96\x81") != std::string::npos) continue;  // the mark for a blank
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, {})), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RoundTrip,
                         testing::Values("gpt-2", "qwen2", "llama-bpe", "deepseek-llm",
                                         "deepseek-coder", "deepseek-v3", "starcoder", "falcon",
                                         "tekken", "gpt-4o", "qwen35", "spm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace model
