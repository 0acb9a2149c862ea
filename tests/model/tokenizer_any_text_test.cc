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

constexpr const char* kTypeNames[] = {"gpt-2",          "qwen2",       "llama-bpe", "deepseek-llm",
                                      "deepseek-coder", "deepseek-v3", "starcoder", "refact",
                                      "falcon",         "mpt",         "tekken",    "gpt-4o",
                                      "qwen35",         "glm4",        "kimi-k2"};

/// Merges that build long tokens out of the characters of the long runs.
std::vector<std::string> run_merges() {
  return {"Z Z",   "ZZ ZZ", "ZZZZ ZZZZ", "9 9",     "99 9", "Ċ Ċ", "ĊĊ ĊĊ", "Ġ Ġ",
          "ĠĠ ĠĠ", "å Ń",   "åŃ Ĺ",      "åŃĹ åŃĹ", "Ġ x",  "Ì ģ", "a Ìģ",  "aÌģ aÌģ"};
}

// --- B1: one long run of a single character class ---

class RowB1 : public testing::TestWithParam<const char*> {};

TEST_P(RowB1, LongRunsHaveIdsInLinearWork) {
  const Tokenizer tokenizer =
      make_tokenizer(byte_pair_vocabulary({.pre = GetParam(), .merges = run_merges()}));
  const auto halves = model_test::long_runs(0.5);
  const auto runs = model_test::long_runs(1);
  for (size_t i = 0; i < runs.size(); ++i) {
    EncodeWork work, work_of_half;
    const Ids ids = tokenizer.encode(runs[i].text, {.work = &work});
    EXPECT_TRUE(tokenizer.decode(ids) == runs[i].text) << runs[i].name;
    tokenizer.encode(halves[i].text, {.work = &work_of_half});
    const auto total = [](const EncodeWork& w) {
      return w.matches + w.matched_bytes + w.merge_steps;
    };
    EXPECT_LE(2 * total(work), 5 * total(work_of_half)) << runs[i].name;
    // Each step takes one candidate; there is one at first per byte, and a merge adds at most two.
    EXPECT_LE(work.merge_steps, 3 * static_cast<int64_t>(runs[i].text.size())) << runs[i].name;
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
  const auto halves = model_test::long_runs(0.5);
  const auto runs = model_test::long_runs(1);
  for (size_t i = 0; i < runs.size(); ++i) {
    EncodeWork work, work_of_half;
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode(runs[i].text, {.work = &work})) == runs[i].text);
    tokenizer.encode(halves[i].text, {.work = &work_of_half});
    EXPECT_LE(2 * work.merge_steps, 5 * work_of_half.merge_steps) << runs[i].name;
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
  const Tokenizer tokenizer =
      make_tokenizer(spm ? spm_vocabulary({.pieces = {"\xE2\x96\x81", "a",
                                                      "\xE2\x96\x81"
                                                      "a",
                                                      "'s", "\xC3\xA9"},
                                           .extra = {{"<u>", 4}}})
                         : byte_pair_vocabulary(
                               {.pre = GetParam(), .merges = run_merges(), .extra = {{"<u>", 4}}}));
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
