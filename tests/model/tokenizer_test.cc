// Rules of special tokens, BOS, blanks and names; broken vocabularies.
#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/pretokenizer_types.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using model_test::byte_pair_vocabulary;
using model_test::make_tokenizer;
using model_test::spm_vocabulary;
using Ids = std::vector<int32_t>;

// --- B3: blanks of SentencePiece ---

class RowB3 : public testing::Test {
 protected:
  static Metadata vocabulary() {
    return spm_vocabulary({.pieces = {"\xE2\x96\x81", "a", "b",
                                      "\xE2\x96\x81"
                                      "a",
                                      "\xE2\x96\x81"
                                      "b",
                                      "\xE2\x96\x81\xE2\x96\x81", "ab"}});
  }
  const std::vector<std::string> texts_ = {"a b",
                                           " a b",
                                           "\ta",
                                           "",
                                           "a\xC2\xA0"
                                           "b",
                                           "  ",
                                           "a  b "};
};

TEST_F(RowB3, SecondRoundGivesTheSameIdsAndTheTextItself) {
  for (const int setting : {0, 1, 2}) {
    Metadata metadata = vocabulary();
    if (setting < 2) metadata.set("tokenizer.ggml.add_space_prefix", setting == 1);
    const Tokenizer tokenizer = make_tokenizer(metadata);
    for (const std::string& text : texts_) {
      const Ids ids = tokenizer.encode(text, {});
      EXPECT_EQ(tokenizer.decode(ids), text) << setting;
      EXPECT_EQ(tokenizer.encode(tokenizer.decode(ids), {}), ids) << setting;
    }
  }
}

TEST_F(RowB3, AbsentCountsAsTrue) {
  Metadata with = vocabulary();
  with.set("tokenizer.ggml.add_space_prefix", true);
  const Tokenizer absent = make_tokenizer(vocabulary());
  const Tokenizer present = make_tokenizer(with);
  EXPECT_TRUE(absent.adds_space_prefix());
  for (const std::string& text : texts_) {
    EXPECT_EQ(absent.encode(text, {}), present.encode(text, {}));
  }
  EXPECT_EQ(absent.piece(absent.encode("ab", {})[0]), " a");
}

TEST_F(RowB3, FalseInventsNoBlankAlsoAfterAControlToken) {
  Metadata metadata = vocabulary();
  metadata.set("tokenizer.ggml.add_space_prefix", false);
  const Tokenizer tokenizer = make_tokenizer(metadata);
  const Ids ids = tokenizer.encode("<s>ab", {.parse_special = true});
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(tokenizer.piece(ids[1]), "ab");
}

// --- B4: BOS and EOS ---

Metadata with_bos(Metadata metadata, int setting, int64_t bos) {
  if (setting < 2) metadata.set("tokenizer.ggml.add_bos_token", setting == 1);
  metadata.set("tokenizer.ggml.bos_token_id", bos);
  metadata.set("tokenizer.ggml.eos_token_id", bos + 1);
  metadata.set("tokenizer.ggml.add_eos_token", true);
  return metadata;
}

TEST(RowB4, TheFileDecidesElseTheKindOfVocabulary) {
  const struct {
    const char* pre;
    bool by_default;
  } cases[] = {{"llama-bpe", true}, {"tekken", true}, {"qwen2", false}, {"gpt-2", false}};
  for (const auto& item : cases) {
    for (const int setting : {0, 1, 2}) {
      const Metadata plain =
          byte_pair_vocabulary({.pre = item.pre, .extra = {{"<bos>", 3}, {"<eos>", 3}}});
      const Tokenizer tokenizer = make_tokenizer(with_bos(plain, setting, 256));
      EXPECT_EQ(tokenizer.adds_bos(), setting == 2 ? item.by_default : setting == 1) << item.pre;
    }
  }
  for (const int setting : {0, 1, 2}) {
    const Tokenizer tokenizer = make_tokenizer(with_bos(spm_vocabulary({}), setting, 1));
    EXPECT_EQ(tokenizer.adds_bos(), setting != 0);
  }
}

TEST(RowB4, NeverTwoAndNoEos) {
  const Tokenizer tokenizer = make_tokenizer(
      with_bos(byte_pair_vocabulary({.extra = {{"<bos>", 3}, {"<eos>", 3}}}), 1, 256));
  const Ids with = {256, 'a'};
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = true}), with);
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = false}), (Ids{'a'}));
  EXPECT_EQ(tokenizer.encode("<bos>a", {.parse_special = true, .add_bos = true}), with);
  EXPECT_EQ(tokenizer.encode("", {.add_bos = true}), (Ids{256}));
  // Unparsed it is text like any other, so the real one comes before it.
  EXPECT_EQ(tokenizer.encode("<bos>a", {.add_bos = true}),
            (Ids{256, '<', 'b', 'o', 's', '>', 'a'}));
  // Further ones were written on purpose.
  EXPECT_EQ(tokenizer.encode("a<bos>", {.parse_special = true, .add_bos = true}),
            (Ids{256, 'a', 256}));
}

TEST(RowB4, SentencePieceToo) {
  // Of what a template wrote (specials are parsed) and of raw text, with and without a literal BOS.
  for (const int setting : {0, 1, 2}) {
    const Tokenizer tokenizer =
        make_tokenizer(with_bos(spm_vocabulary({.pieces = {"\xE2\x96\x81", "a"}}), setting, 1));
    const bool adds = tokenizer.adds_bos();
    EXPECT_EQ(adds, setting != 0);
    const Ids text = {259, 260};  // a blank and "a"
    const Ids with = {1, 259, 260};
    EXPECT_EQ(tokenizer.encode("a", {.parse_special = true, .add_bos = adds}), adds ? with : text);
    EXPECT_EQ(tokenizer.encode("<s>a", {.parse_special = true, .add_bos = adds}), with);
    // Raw text cannot spell it: three characters more, and still one BOS at most.
    const Ids raw = tokenizer.encode("<s>a", {.add_bos = adds});
    EXPECT_EQ(std::ranges::count(raw, 1), adds ? 1 : 0);
    EXPECT_EQ(std::ranges::count(raw, 2), 0) << "EOS is never added";
    EXPECT_EQ(tokenizer.decode(raw), "<s>a");
  }
}

TEST(RowB4, WithoutABosTokenNoneIsAdded) {
  Metadata metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.add_bos_token", true);
  const Tokenizer tokenizer = make_tokenizer(metadata);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("a", {.add_bos = true}), (Ids{'a'}));
}

// --- B5: a word that is a token ---

TEST(RowB5, WholeWordsComeFirstWhereTheTypeImpliesIt) {
  for (const std::string pre : {"llama-bpe", "tekken", "qwen2"}) {
    // Merges build "Ġx" (256) and "yz" (257) only; "Ġxyz" (258) is a token all the same.
    const Tokenizer tokenizer = make_tokenizer(
        byte_pair_vocabulary({.pre = pre, .merges = {"Ġ x", "y z"}, .extra = {{"Ġxyz", 1}}}));
    const Ids expected = pre == "qwen2" ? Ids{256, 257} : Ids{258};
    EXPECT_EQ(tokenizer.encode(" xyz", {}), expected) << pre;
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(" xyz", {})), " xyz");
  }
}

// --- B7: names ---

TEST(RowB7, AliasesStandForTheirPattern) {
  const struct {
    const char *alias, *type;
  } cases[] = {{"deepseek-r1-qwen", "qwen2"}, {"Qwen2", "qwen2"},        {"smollm", "starcoder"},
               {"llama3", "llama-bpe"},       {"llama-v3", "llama-bpe"}, {"gpt2", "gpt-2"},
               {"llama4", "gpt-4o"}};
  for (const auto& item : cases) {
    ASSERT_NE(find_pretokenizer_type(item.alias), nullptr) << item.alias;
    EXPECT_EQ(find_pretokenizer_type(item.alias), find_pretokenizer_type(item.type));
  }
  EXPECT_EQ(find_pretokenizer_type("gpt-4o")->name, "gpt-4o");
}

TEST(RowB7, NoNameMeansGpt2AndOneWarning) {
  for (const char* pre : {"", "default"}) {
    model_test::RecordingLog log;
    const Metadata metadata = byte_pair_vocabulary({.pre = pre, .merges = {"1 2", "12 3"}});
    const auto tokenizer = Tokenizer::create(metadata, &log);
    ASSERT_TRUE(tokenizer.ok());
    ASSERT_EQ(log.warnings().size(), 1u);
    EXPECT_NE(log.warnings()[0].find("numbers"), std::string::npos);
    // qwen2 would cut the number into digits.
    EXPECT_EQ(tokenizer->encode("123", {}), (Ids{257}));
  }
}

TEST(RowB7, UnknownNamesAreRefusedWithTheKnownOnes) {
  base::NullLog log;
  const auto tokenizer = Tokenizer::create(byte_pair_vocabulary({.pre = "nosuch"}), &log);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, base::Code::kUnsupported);
  for (const char* part : {"'nosuch'", "qwen2", "llama-bpe", "deepseek-r1-qwen"}) {
    EXPECT_NE(tokenizer.error().message.find(part), std::string::npos) << part;
  }
}

// --- special tokens ---

TEST(SpecialTokens, TheLongestAtTheLeftmostPositionWins) {
  const Tokenizer tokenizer = make_tokenizer(byte_pair_vocabulary(
      {.extra = {{"<a>", 3}, {"<a><b>", 3}, {"ab", 4}, {"bcd", 4}, {"  ", 4}, {"    ", 4}}}));
  const EncodeOptions parse = {.parse_special = true};
  EXPECT_EQ(tokenizer.encode("<a><b><a>x", parse), (Ids{257, 256, 'x'}));
  EXPECT_EQ(tokenizer.encode("abcd", parse), (Ids{258, 'c', 'd'}));
  EXPECT_EQ(tokenizer.encode("      ", parse), (Ids{261, 260}));
}

TEST(SpecialTokens, UserDefinedOnesAreAlwaysMatchedControlOnesOnRequest) {
  const Tokenizer tokenizer =
      make_tokenizer(byte_pair_vocabulary({.extra = {{"<c>", 3}, {"<u>", 4}}}));
  EXPECT_EQ(tokenizer.encode("<u><c>", {}), (Ids{257, '<', 'c', '>'}));
  EXPECT_EQ(tokenizer.encode("<u><c>", {.parse_special = true}), (Ids{257, 256}));
  EXPECT_TRUE(tokenizer.is_control(256));
  EXPECT_TRUE(tokenizer.is_user_defined(257));
}

TEST(SpecialTokens, ControlLiteralsDoNotComeOutOfMerges) {
  // "<s>" could be built by merging its characters; SentencePiece keeps control pieces apart.
  const Tokenizer tokenizer =
      make_tokenizer(spm_vocabulary({.pieces = {"<s", ">", "\xE2\x96\x81"}}));
  for (const int32_t id : tokenizer.encode("<s>", {})) EXPECT_FALSE(tokenizer.is_control(id));
}

TEST(SpecialTokens, LiteralsBrokenByTheSentinelAreOrdinaryText) {
  const std::string mark = "\xEF\xB7\x90";
  const Tokenizer tokenizer =
      make_tokenizer(byte_pair_vocabulary({.extra = {{"<|end|>", 3}, {"@", 3}, {"<think>", 4}}}));
  const EncodeOptions options = {.parse_special = true, .sentinel = mark};
  EXPECT_EQ(tokenizer.encode("<" + mark + "|end|><|end|><think>", options),
            (Ids{'<', '|', 'e', 'n', 'd', '|', '>', 256, 258}));
  EXPECT_EQ(tokenizer.encode("a" + mark, options), (Ids{'a'}));
  EXPECT_EQ(tokenizer.encode(mark, options), Ids{});
  // A single character cannot be broken, so it is not looked for.
  EXPECT_EQ(tokenizer.encode("@", options), (Ids{'@'}));
  EXPECT_EQ(tokenizer.encode("@", {.parse_special = true}), (Ids{257}));
}

TEST(Tokenizer, KnowsWhichTokensEndAGeneration) {
  Metadata metadata = byte_pair_vocabulary({.extra = {{"<|im_end|>", 3},
                                                      {"<|endoftext|>", 3},
                                                      {"<|eot_id|>", 4},
                                                      {"<stop>", 3},
                                                      {"<turn_over>", 3},
                                                      {"<|im_start|>", 3}}});
  metadata.set("tokenizer.ggml.eos_token_id", int64_t{259});
  metadata.set("tokenizer.ggml.eot_token_id", int64_t{260});
  const Tokenizer tokenizer = make_tokenizer(metadata);
  EXPECT_TRUE(tokenizer.ends_generation(256));
  EXPECT_TRUE(tokenizer.ends_generation(257));
  EXPECT_FALSE(tokenizer.ends_generation(258)) << "a user-defined token is text";
  EXPECT_TRUE(tokenizer.ends_generation(259));
  EXPECT_TRUE(tokenizer.ends_generation(260));
  EXPECT_FALSE(tokenizer.ends_generation(261));
  EXPECT_FALSE(tokenizer.ends_generation('a'));
  EXPECT_FALSE(tokenizer.ends_generation(-1));
  EXPECT_FALSE(tokenizer.ends_generation(1 << 20));
}

// Of gpt-oss <|end|> closes one channel of an answer; alone, as in other vocabularies, it ends one.
TEST(Tokenizer, ChannelsOfGptOssDoNotEndAGeneration) {
  const Tokenizer channels = make_tokenizer(byte_pair_vocabulary({.extra = {{"<|return|>", 3},
                                                                            {"<|call|>", 3},
                                                                            {"<|end|>", 3},
                                                                            {"<|channel|>", 3},
                                                                            {"<|message|>", 3}}}));
  EXPECT_TRUE(channels.ends_generation(256));
  EXPECT_TRUE(channels.ends_generation(257));
  for (const int32_t id : {258, 259, 260}) EXPECT_FALSE(channels.ends_generation(id)) << id;
  const Tokenizer alone = make_tokenizer(byte_pair_vocabulary({.extra = {{"<|end|>", 3}}}));
  EXPECT_TRUE(alone.ends_generation(256));
}

TEST(Tokenizer, EndsOfLlama4AndMinimaxAreKnown) {
  const Tokenizer tokenizer = make_tokenizer(byte_pair_vocabulary(
      {.pre = "llama4", .extra = {{"<|eot|>", 3}, {"<|eom|>", 3}, {"[e~[", 3}, {"<|step|>", 3}}}));
  for (const int32_t id : {256, 257, 258}) EXPECT_TRUE(tokenizer.ends_generation(id)) << id;
  EXPECT_FALSE(tokenizer.ends_generation(259));
}

TEST(Tokenizer, IdsOutsideTheVocabularyCountAsAbsentWithAWarning) {
  model_test::RecordingLog log;
  Metadata metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.bos_token_id", int64_t{-1});
  metadata.set("tokenizer.ggml.eos_token_id", int64_t{4294967295});
  const auto tokenizer = Tokenizer::create(metadata, &log);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
  EXPECT_EQ(log.warnings().size(), 2u);
}

// --- broken and odd vocabularies ---

TEST(Tokenizer, RefusesListsThatContradictEachOther) {
  base::NullLog log;
  const auto message = [&log](const Metadata& metadata) {
    const auto tokenizer = Tokenizer::create(metadata, &log);
    return tokenizer.ok() ? std::string("accepted") : tokenizer.error().message;
  };
  Metadata metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.token_type", std::vector<int64_t>{1, 2});
  EXPECT_NE(message(metadata).find("token_type has 2"), std::string::npos);
  metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab"});
  EXPECT_NE(message(metadata).find("merges[1]"), std::string::npos);
  metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.merges", std::vector<std::string>{"a \xE4\xBD\xA0"});
  EXPECT_NE(message(metadata).find("merges[0]"), std::string::npos);
  metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{});
  EXPECT_NE(message(metadata).find("tokenizer.ggml.tokens"), std::string::npos);
  metadata = byte_pair_vocabulary({});
  metadata.set("tokenizer.ggml.model", "bert");
  EXPECT_NE(message(metadata).find("'bert'"), std::string::npos);
  metadata = spm_vocabulary({});
  metadata.set("tokenizer.ggml.scores", std::vector<double>{1.0});
  EXPECT_NE(message(metadata).find("scores"), std::string::npos);
}

TEST(Tokenizer, MergesMayPassThroughStringsThatAreNoTokens) {
  Metadata metadata = byte_pair_vocabulary({.merges = {"a b", "ab c"}});
  auto tokens = *metadata.strings("tokenizer.ggml.tokens");
  tokens[256] = "unrelated";  // "ab" is no token any more, "abc" still is
  metadata.set("tokenizer.ggml.tokens", tokens);
  const Tokenizer tokenizer = make_tokenizer(metadata);
  EXPECT_EQ(tokenizer.encode("abc", {}), (Ids{257}));
  EXPECT_EQ(tokenizer.encode("abd", {}), (Ids{'a', 'b', 'd'}));
}

TEST(Tokenizer, ABytesWithoutATokenSpellsTheReplacementCharacter) {
  Metadata metadata = byte_pair_vocabulary({});
  auto tokens = *metadata.strings("tokenizer.ggml.tokens");
  tokens[0xFF] = "unrelated";
  metadata.set("tokenizer.ggml.tokens", tokens);
  const Tokenizer tokenizer = make_tokenizer(metadata);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF"
                                              "b\xFE",
                                              {})),
            "a\xEF\xBF\xBD"
            "b\xFE");
}

}  // namespace
}  // namespace model
