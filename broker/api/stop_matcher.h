// Finds the leftmost stop string in a text that arrives in pieces.
//
// What comes out is the text in front of the first place where any stop string begins, wherever the
// pieces are cut: the same as searching the whole text. So a stop that is complete waits while a
// longer one that began before it can still be completed. Only a suffix that can still become a
// stop is held back. Work per piece is bounded by its length and the longest stop, not by the text
// so far. Text and stops are UTF-8; what comes out is cut at characters if they are whole in the
// pieces. Thread rule: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace broker {

class StopMatcher {
 public:
  /// No stop may be empty; none at all: everything passes.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// The text that is certain now. Nothing comes after a match.
  std::string push(std::string_view piece);
  /// The text has ended: the rest of it, up to a stop that was complete.
  std::string finish();
  bool matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // begins where a stop may begin, or is empty
  bool matched_ = false;
};

}  // namespace broker
