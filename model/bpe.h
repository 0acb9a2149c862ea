// Byte-pair merges: one piece of text to token ids.
//
// A piece starts as one symbol per byte; the adjacent pair with the lowest rank is merged, leftmost
// first, until none is left. Candidates live in a heap over a linked list of symbols, so a piece of
// n bytes costs O(n log n) whatever it holds.
//
// A merge may name a string that is not a token (published lists are not always closed). Such a
// symbol gets a private number past the vocabulary and is spelled by its bytes if it survives.
//
// Any thread; `BpeScratch` belongs to one call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/pretokenizer.h"
#include "model/vocabulary.h"

namespace model {

/// Buffers reused from piece to piece.
struct BpeScratch {
  struct Symbol {
    int32_t id = -1;  // -1 once it is part of its left neighbour
    int32_t previous = -1, next = -1;
  };
  struct Candidate {
    uint32_t rank = 0;
    int32_t left = 0;  // index of the left symbol
    int32_t left_id = 0, right_id = 0, merged_id = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

struct BpeOptions {
  bool whole_words_first = false;  // a piece that is a token is taken as it is
};

class Bpe {
 public:
  /// Reads `tokenizer.ggml.merges`. Errors: kBrokenFile, naming the entry.
  static base::Result<Bpe> create(const Metadata& metadata, const Vocabulary& vocabulary,
                                  BpeOptions options);

  /// Appends the ids of `piece`, any bytes. A byte without a token becomes the unknown token, or
  /// nothing if the vocabulary has none.
  void encode(std::string_view piece, BpeScratch& scratch, EncodeWork& work,
              std::vector<int32_t>& ids) const;

  /// Whether the byte has a token of its own.
  bool has_byte(uint8_t byte) const { return byte_symbols_[byte] < vocabulary_size_; }

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t merged_id = 0;
  };

  Bpe() = default;
  int32_t symbol_of(const std::string& bytes);
  void push_candidate(BpeScratch& scratch, int32_t left) const;
  void append(int32_t symbol, std::vector<int32_t>& ids) const;

  // Constant after construction.
  bool whole_words_first_ = false;
  int32_t vocabulary_size_ = 0;
  int32_t unknown_ = -1;
  SpellingMap<int32_t> symbols_;              // token or private number
  std::vector<std::string> private_symbols_;  // spelling of number vocabulary_size_ + i
  std::array<int32_t, 256> byte_symbols_{};
  std::unordered_map<uint64_t, Merge> merges_;  // by pair_key
};

}  // namespace model
