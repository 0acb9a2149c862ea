// Who may be given up, by the plainest reading of the rule: a list of the crashes of one request.
//
// It shares no code with broker/blame. Thread rule: a value.
#pragma once

#include <cstddef>
#include <vector>

namespace sim {

class Suspicion {
 public:
  /// It went to the leader of the present group.
  void on_sent() { is_sent_ = true; }
  /// The group was lost when so many tokens had come.
  void on_crash(size_t tokens) {
    if (is_sent_) crashes_.push_back(tokens);
    is_sent_ = false;
  }
  /// Crashes up to now that it was under way in, with less than 16 tokens in between, and since the
  /// last one.
  int in_row(size_t tokens) const {
    if (crashes_.empty() || tokens - crashes_.back() >= 16) return 0;
    int count = 1;
    for (size_t i = crashes_.size() - 1; i > 0 && crashes_[i] - crashes_[i - 1] < 16; i--) count++;
    return count;
  }
  /// Whether a crash now is one too many.
  bool may_be_given_up(size_t tokens) const {
    return is_sent_ && (in_row(tokens) >= 2 || crashes_.size() + 1 >= 10);
  }

 private:
  bool is_sent_ = false;
  std::vector<size_t> crashes_;  // tokens at each
};

}  // namespace sim
