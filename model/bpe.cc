#include "model/bpe.h"

#include <algorithm>

#include "base/cat.h"

namespace model {

namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

/// Heap order: std::push_heap keeps the largest in front, so "less" means "merged later".
bool later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

size_t index(int32_t i) {
  return static_cast<size_t>(i);
}

}  // namespace

base::Result<Bpe> Bpe::create(const Metadata& metadata, const Vocabulary& vocabulary,
                              BpeOptions options) {
  Bpe bpe;
  bpe.whole_words_first_ = options.whole_words_first;
  bpe.vocabulary_size_ = static_cast<int32_t>(vocabulary.size());
  bpe.unknown_ = vocabulary.unknown.value_or(-1);
  bpe.symbols_.reserve(vocabulary.pieces.size());
  for (int32_t id = 0; id < bpe.vocabulary_size_; ++id) {
    const TokenType type = vocabulary.type(id);
    // Only these come out of ordinary text.
    if (type != TokenType::kNormal && type != TokenType::kByte) continue;
    if (!vocabulary.piece(id).empty()) bpe.symbols_.emplace(vocabulary.piece(id), id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    bpe.byte_symbols_[index(byte)] = bpe.symbol_of(std::string(1, static_cast<char>(byte)));
  }

  const auto* merges = metadata.strings("tokenizer.ggml.merges");
  if (merges == nullptr) {
    return base::Error{base::Code::kBrokenFile,
                       "tokenizer.ggml.merges is missing; a byte-pair vocabulary needs it"};
  }
  bpe.merges_.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string_view merge = (*merges)[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return base::Error{base::Code::kBrokenFile, base::cat("tokenizer.ggml.merges[", rank,
                                                            "] is not two symbols with a space "
                                                            "between them")};
    }
    const auto left = bytes_of_alphabet(merge.substr(0, space));
    const auto right = bytes_of_alphabet(merge.substr(space + 1));
    if (!left || !right) {
      return base::Error{
          base::Code::kBrokenFile,
          base::cat("tokenizer.ggml.merges[", rank, "] has a character outside the byte alphabet")};
    }
    const Merge entry = {.rank = static_cast<uint32_t>(rank),
                         .merged_id = bpe.symbol_of(*left + *right)};
    bpe.merges_.emplace(pair_key(bpe.symbol_of(*left), bpe.symbol_of(*right)), entry);
  }
  return bpe;
}

int32_t Bpe::symbol_of(const std::string& bytes) {
  const auto number = vocabulary_size_ + static_cast<int32_t>(private_symbols_.size());
  const auto [it, inserted] = symbols_.emplace(bytes, number);
  if (inserted) private_symbols_.push_back(bytes);
  return it->second;
}

void Bpe::push_candidate(BpeScratch& scratch, int32_t left) const {
  const BpeScratch::Symbol& symbol = scratch.symbols[index(left)];
  if (symbol.next < 0) return;
  const int32_t right_id = scratch.symbols[index(symbol.next)].id;
  const auto it = merges_.find(pair_key(symbol.id, right_id));
  if (it == merges_.end()) return;
  scratch.heap.push_back({.rank = it->second.rank,
                          .left = left,
                          .left_id = symbol.id,
                          .right_id = right_id,
                          .merged_id = it->second.merged_id});
  std::ranges::push_heap(scratch.heap, later);
}

void Bpe::encode(std::string_view piece, BpeScratch& scratch, EncodeWork& work,
                 std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (whole_words_first_) {
    const auto it = symbols_.find(piece);
    if (it != symbols_.end() && it->second < vocabulary_size_) {
      ids.push_back(it->second);
      return;
    }
  }
  auto& symbols = scratch.symbols;
  symbols.resize(piece.size());
  const auto count = static_cast<int32_t>(piece.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[index(i)] = {.id = byte_symbols_[static_cast<uint8_t>(piece[index(i)])],
                         .previous = i - 1,
                         .next = i + 1 < count ? i + 1 : -1};
  }
  scratch.heap.clear();
  for (int32_t i = 0; i < count; ++i) push_candidate(scratch, i);

  while (!scratch.heap.empty()) {
    ++work.merge_steps;
    std::ranges::pop_heap(scratch.heap, later);
    const BpeScratch::Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    auto& left = symbols[index(best.left)];
    // Candidates are not withdrawn when a neighbour changes; they are recognised here. An id stands
    // for one spelling, so equal ids on both sides mean that the pair is still the same.
    if (left.id != best.left_id || left.next < 0) continue;
    auto& right = symbols[index(left.next)];
    if (right.id != best.right_id) continue;
    left.id = best.merged_id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[index(left.next)].previous = best.left;
    push_candidate(scratch, best.left);
    if (left.previous >= 0) push_candidate(scratch, left.previous);
  }
  for (int32_t i = 0; i >= 0; i = symbols[index(i)].next) append(symbols[index(i)].id, ids);
}

void Bpe::append(int32_t symbol, std::vector<int32_t>& ids) const {
  if (symbol < vocabulary_size_) {
    ids.push_back(symbol);
    return;
  }
  for (const char c : private_symbols_[index(symbol - vocabulary_size_)]) {
    const int32_t byte_symbol = byte_symbols_[static_cast<uint8_t>(c)];
    if (byte_symbol < vocabulary_size_) {
      ids.push_back(byte_symbol);
    } else if (unknown_ >= 0) {
      ids.push_back(unknown_);
    }
  }
}

}  // namespace model
