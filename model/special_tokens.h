// Finds the tokens that are matched as literal text before anything else: control and user-defined.
//
// One trie over the bytes of all such tokens. At each position the longest token wins, and the
// leftmost position wins over later ones, as in the tokenizers that models are trained with. The
// work is at most (bytes of text) x (bytes of the longest token).
//
// `guard` is what keeps data from spelling control tokens: it breaks their literals in a text with
// a sentinel that is taken out again after the text was cut. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"

namespace model {

/// A token, or ordinary text between tokens.
struct Segment {
  std::string_view text;
  int32_t token = -1;  // -1 if ordinary
};

struct SplitOptions {
  bool control = false;  // also control and unknown tokens
  /// Literals of data were broken with a sentinel. That cannot be done to a control token of a
  /// single character, so such tokens are not looked for.
  bool guarded = false;
};

/// `text` without every occurrence of `sentinel`, which is not empty.
std::string remove_sentinel(std::string_view text, std::string_view sentinel);

class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  /// Segments in order; no two ordinary ones in a row, none empty. They point into `text`.
  std::vector<Segment> split(std::string_view text, SplitOptions options) const;

 private:
  struct Node {
    uint8_t byte = 0;
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t control = -1;       // token that ends here
    int32_t user_defined = -1;  // token that ends here
    bool single_character = false;
  };
  struct Match {
    size_t length = 0;
    int32_t token = -1;
  };

  void add(std::string_view literal, int32_t token, TokenType type);
  int32_t child(int32_t node, uint8_t byte) const;
  Match longest_at(std::string_view text, SplitOptions options) const;

  // Constant after construction. Node 0 is the root; its children are also in root_.
  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_;
};

}  // namespace model
