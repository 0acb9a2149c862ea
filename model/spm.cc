#include "model/spm.h"

#include <algorithm>
#include <unordered_map>

#include "model/utf8.h"

namespace model {

namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581

size_t index(int32_t i) {
  return static_cast<size_t>(i);
}

std::string blanks_for_marks(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const bool mark = text.substr(i).starts_with(kBlank);
    out += mark ? ' ' : text[i];
    i += mark ? kBlank.size() : 1;
  }
  return out;
}

}  // namespace

struct Spm::Symbol {
  size_t begin = 0;
  size_t length = 0;  // 0 once it is part of its left neighbour
  int32_t previous = -1, next = -1;
};

struct Spm::Candidate {
  float score = 0;
  int32_t left = 0;   // index of the left symbol
  size_t length = 0;  // of both together: tells whether either has changed since

  /// Heap order: "less" means "merged later".
  static bool later(const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  }
};

struct Spm::Run {
  std::string text;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  // Of unused tokens that occur in the text: the length of the left one of the two symbols that it
  // would last have been merged from.
  std::unordered_map<std::string_view, size_t> left_of_unused;
};

struct Spm::Output {
  std::vector<int32_t>& ids;
  bool after_unknown = false;
};

Spm::Spm(const Vocabulary& vocabulary) : unknown_(vocabulary.unknown.value_or(-1)) {
  byte_tokens_.fill(-1);
  tokens_.reserve(vocabulary.pieces.size());
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view piece = vocabulary.piece(id);
    if (vocabulary.type(id) == TokenType::kByte && piece.size() == 1) {
      byte_tokens_[static_cast<uint8_t>(piece[0])] = id;
    } else if (!piece.empty() && (vocabulary.type(id) == TokenType::kNormal ||
                                  vocabulary.type(id) == TokenType::kUnused)) {
      tokens_.emplace(piece, Token{.id = id,
                                   .score = vocabulary.scores[index(id)],
                                   .unused = vocabulary.type(id) == TokenType::kUnused});
    }
  }
}

void Spm::push_candidate(Run& run, int32_t left) const {
  const Symbol& symbol = run.symbols[index(left)];
  if (symbol.next < 0) return;
  const size_t length = symbol.length + run.symbols[index(symbol.next)].length;
  const std::string_view both = std::string_view(run.text).substr(symbol.begin, length);
  const auto it = tokens_.find(both);
  if (it == tokens_.end()) return;
  if (it->second.unused) run.left_of_unused[both] = symbol.length;
  run.heap.push_back({.score = it->second.score, .left = left, .length = length});
  std::ranges::push_heap(run.heap, Candidate::later);
}

void Spm::encode(std::string_view text, EncodeWork& work, std::vector<int32_t>& ids) const {
  Run run{.text = blanks_for_marks(text), .symbols = {}, .heap = {}, .left_of_unused = {}};
  const std::string_view rest = run.text;
  for (size_t begin = 0; begin < rest.size();) {
    const auto length = static_cast<size_t>(decode_utf8(rest.substr(begin)).length);
    const auto i = static_cast<int32_t>(run.symbols.size());
    const bool last = begin + length == rest.size();
    run.symbols.push_back(
        {.begin = begin, .length = length, .previous = i - 1, .next = last ? -1 : i + 1});
    begin += length;
  }
  for (int32_t i = 0; i < static_cast<int32_t>(run.symbols.size()); ++i) push_candidate(run, i);

  while (!run.heap.empty()) {
    ++work.merge_steps;
    std::ranges::pop_heap(run.heap, Candidate::later);
    const Candidate best = run.heap.back();
    run.heap.pop_back();
    Symbol& left = run.symbols[index(best.left)];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = run.symbols[index(left.next)];
    if (left.length + right.length != best.length) continue;
    left.length = best.length;
    right.length = 0;
    left.next = right.next;
    if (left.next >= 0) run.symbols[index(left.next)].previous = best.left;
    push_candidate(run, best.left);
    if (left.previous >= 0) push_candidate(run, left.previous);
  }
  if (run.symbols.empty()) return;
  Output output{.ids = ids};
  for (int32_t i = 0; i >= 0; i = run.symbols[index(i)].next) {
    const Symbol& symbol = run.symbols[index(i)];
    append_symbol(run, rest.substr(symbol.begin, symbol.length), output);
  }
}

void Spm::append_symbol(const Run& run, std::string_view symbol, Output& output) const {
  if (run.left_of_unused.empty()) return append(symbol, output);
  std::vector<std::string_view> stack = {symbol};  // the leftmost on top
  while (!stack.empty()) {
    const std::string_view top = stack.back();
    stack.pop_back();
    const auto it = run.left_of_unused.find(top);
    if (it == run.left_of_unused.end()) {
      append(top, output);
      continue;
    }
    stack.push_back(top.substr(it->second));
    stack.push_back(top.substr(0, it->second));
  }
}

void Spm::append(std::string_view symbol, Output& output) const {
  if (const auto it = tokens_.find(symbol); it != tokens_.end() && !it->second.unused) {
    output.ids.push_back(it->second.id);
    output.after_unknown = false;
    return;
  }
  const bool spelled = std::ranges::all_of(
      symbol, [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; });
  if (!spelled) {
    if (unknown_ >= 0 && !output.after_unknown) output.ids.push_back(unknown_);
    output.after_unknown = true;
    return;
  }
  for (const char c : symbol) output.ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  output.after_unknown = false;
}

}  // namespace model
