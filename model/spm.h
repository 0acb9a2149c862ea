// SentencePiece merges as `tokenizer.ggml.model` = `llama` files need them: by score, not by rank.
//
// Text starts as one symbol per character; the adjacent pair whose concatenation is the token with
// the highest score is merged, leftmost first, until none is left. Unused tokens take part, and are
// then taken apart into what they were merged from. What is no token is spelled by byte tokens, or
// a run of it by one unknown token. Candidates live in a heap, so n characters cost O(n log n).
//
// Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/pretokenizer.h"
#include "model/vocabulary.h"

namespace model {

class Spm {
 public:
  explicit Spm(const Vocabulary& vocabulary);

  /// Appends the ids of `text`, any bytes. U+2581 in the text counts as a blank.
  void encode(std::string_view text, EncodeWork& work, std::vector<int32_t>& ids) const;

 private:
  struct Symbol;
  struct Candidate;
  struct Run;
  struct Output;
  struct Token {
    int32_t id = -1;
    float score = 0;
    bool unused = false;
  };

  void push_candidate(Run& run, int32_t left) const;
  void append_symbol(const Run& run, std::string_view symbol, Output& output) const;
  void append(std::string_view symbol, Output& output) const;

  // Constant after construction.
  SpellingMap<Token> tokens_;             // those that ordinary text may become
  std::array<int32_t, 256> byte_tokens_;  // -1 if there is none
  int32_t unknown_ = -1;
};

}  // namespace model
