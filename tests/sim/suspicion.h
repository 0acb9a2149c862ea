// Who may be given up, by the plainest reading of the rule: a list of the crashes of one request.
//
// It shares no code with broker/blame. Thread rule: a value.
#pragma once

#include <cstddef>
#include <vector>

namespace sim {

class Suspicion {
 public:
  /// The leader of the present group has told that it has the request.
  void on_accepted() { is_accepted_ = true; }
  /// The group was lost when so many tokens had come.
  void on_crash(size_t tokens) {
    lost_++;
    if (is_accepted_) crashes_.push_back(tokens);
    is_accepted_ = false;
  }
  /// Crashes up to now in which it ran with less than 16 tokens in between, and since the last one.
  int in_row(size_t tokens) const {
    if (crashes_.empty() || tokens - crashes_.back() >= 16) return 0;
    int count = 1;
    for (size_t i = crashes_.size() - 1; i > 0 && crashes_[i] - crashes_[i - 1] < 16; i--) count++;
    return count;
  }
  /// Whether a crash now is one too many.
  bool may_be_given_up(size_t tokens) const {
    return (is_accepted_ && in_row(tokens) >= 2) || lost_ + 1 >= 10;
  }

 private:
  bool is_accepted_ = false;
  int lost_ = 0;                 // groups, since it began
  std::vector<size_t> crashes_;  // tokens at each
};

}  // namespace sim
