#include "model/special_tokens.h"

#include <algorithm>

#include "model/utf8.h"

namespace model {

namespace {

uint8_t byte_at(std::string_view text, size_t index) {
  return static_cast<uint8_t>(text[index]);
}

size_t first_character_bytes(std::string_view text) {
  return static_cast<size_t>(decode_utf8(text).length);
}

}  // namespace

std::string remove_sentinel(std::string_view text, std::string_view sentinel) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(sentinel); at != std::string_view::npos;
       at = text.find(sentinel, done)) {
    out.append(text.substr(done, at - done));
    done = at + sentinel.size();
  }
  return out.append(text.substr(done));
}

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) : nodes_(1) {
  root_.fill(-1);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    // The unknown token is parsed like a control token: it never comes out of ordinary text.
    if (type == TokenType::kControl || type == TokenType::kUnknown ||
        type == TokenType::kUserDefined) {
      add(vocabulary.piece(id), id, type);
    }
  }
}

void SpecialTokens::add(std::string_view literal, int32_t token, TokenType type) {
  if (literal.empty()) return;
  const bool control = type != TokenType::kUserDefined;
  int32_t node = 0;
  for (size_t i = 0; i < literal.size(); ++i) {
    const uint8_t byte = byte_at(literal, i);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back(
          {.byte = byte, .next_sibling = nodes_[static_cast<size_t>(node)].first_child});
      nodes_[static_cast<size_t>(node)].first_child = next;
      if (node == 0) root_[byte] = next;
    }
    node = next;
  }
  Node& end = nodes_[static_cast<size_t>(node)];
  int32_t& slot = control ? end.control : end.user_defined;
  if (slot < 0) slot = token;
  end.single_character = first_character_bytes(literal) == literal.size();
}

int32_t SpecialTokens::child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_[byte];
  int32_t next = nodes_[static_cast<size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte) {
    next = nodes_[static_cast<size_t>(next)].next_sibling;
  }
  return next;
}

SpecialTokens::Match SpecialTokens::longest_at(std::string_view text, SplitOptions options) const {
  Match match;
  int32_t index = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    index = child(index, byte_at(text, i));
    if (index < 0) break;
    const Node& node = nodes_[static_cast<size_t>(index)];
    const bool control =
        options.control && node.control >= 0 && !(options.guarded && node.single_character);
    if (control) {
      match = {.length = i + 1, .token = node.control};
    } else if (node.user_defined >= 0) {
      match = {.length = i + 1, .token = node.user_defined};
    }
  }
  return match;
}

std::vector<Segment> SpecialTokens::split(std::string_view text, SplitOptions options) const {
  std::vector<Segment> segments;
  size_t done = 0;
  size_t position = 0;
  while (position < text.size()) {
    if (root_[byte_at(text, position)] < 0) {
      ++position;
      continue;
    }
    const Match match = longest_at(text.substr(position), options);
    if (match.token < 0) {
      ++position;
      continue;
    }
    if (position > done) segments.push_back({.text = text.substr(done, position - done)});
    segments.push_back({.text = text.substr(position, match.length), .token = match.token});
    position += match.length;
    done = position;
  }
  if (done < text.size()) segments.push_back({.text = text.substr(done)});
  return segments;
}

}  // namespace model
