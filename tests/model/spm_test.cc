// Corners of SentencePiece merges that its own package showed (spm_oracle_test.py compares them at
// random): unknown characters and unused tokens.
#include "model/spm.h"

#include <gtest/gtest.h>

#include "model/tokenizer.h"
#include "tests/model/tokenizer_support.h"

namespace model {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kFirstPiece = 259;  // after <unk>, <s>, </s> and the bytes

/// Pieces without a blank in front; those of `unused` (numbers of pieces) are unused.
Metadata vocabulary(const std::vector<std::string>& pieces, const std::vector<int32_t>& unused) {
  Metadata metadata = model_test::spm_vocabulary({.pieces = pieces});
  auto types = *metadata.integers("tokenizer.ggml.token_type");
  for (const int32_t piece : unused) types[static_cast<size_t>(kFirstPiece + piece)] = 5;
  metadata.set("tokenizer.ggml.token_type", types);
  metadata.set("tokenizer.ggml.add_space_prefix", false);
  return metadata;
}

Metadata without_bytes(Metadata metadata) {
  auto types = *metadata.integers("tokenizer.ggml.token_type");
  for (size_t id = 3; id < kFirstPiece; id++) types[id] = 5;
  metadata.set("tokenizer.ggml.token_type", types);
  return metadata;
}

Ids encode(const Metadata& metadata, std::string_view text) {
  return model_test::make_tokenizer(metadata).encode(text, {});
}

TEST(Spm, ARunOfUnknownCharactersIsOneToken) {
  const Metadata metadata = without_bytes(vocabulary({"a", "b"}, {}));
  const int32_t a = kFirstPiece, b = kFirstPiece + 1;
  EXPECT_EQ(encode(metadata, "axyzbx"), (Ids{a, 0, b, 0}));
  EXPECT_EQ(encode(metadata, "xy"), (Ids{0}));
  EXPECT_EQ(encode(metadata, "ab"), (Ids{a, b}));
  // With byte tokens nothing is unknown.
  EXPECT_EQ(encode(vocabulary({"a", "b"}, {}), "xa"), (Ids{3 + 'x', a}));
}

TEST(Spm, MergesPassThroughUnusedTokensButDoNotEndThere) {
  //                                   0    1    2    3     4     5
  const Metadata metadata = vocabulary({"a", "b", "c", "ab", "cc", "abc"}, {3, 4});
  const int32_t a = kFirstPiece;
  EXPECT_EQ(encode(metadata, "abc"), (Ids{a + 5})) << "by way of ab";
  EXPECT_EQ(encode(metadata, "aba"), (Ids{a, a + 1, a})) << "ab comes apart";
  EXPECT_EQ(encode(metadata, "ccab"), (Ids{a + 2, a + 2, a, a + 1}));
}

TEST(Spm, AnUnusedCharacterIsSpelledByBytes) {
  EXPECT_EQ(encode(vocabulary({"a", "b"}, {1}), "ab"), (Ids{kFirstPiece, 3 + 'b'}));
}

TEST(Spm, NestedUnusedTokensNeedNoStack) {
  // Each piece is the one before and an "a"; all but the first are unused.
  std::vector<std::string> pieces;
  std::vector<int32_t> unused;
  for (int32_t i = 0; i < 2000; i++) {
    pieces.push_back(std::string(static_cast<size_t>(i) + 1, 'a'));
    if (i > 0) unused.push_back(i);
  }
  EXPECT_EQ(encode(vocabulary(pieces, unused), std::string(2000, 'a')), Ids(2000, kFirstPiece));
}

}  // namespace
}  // namespace model
