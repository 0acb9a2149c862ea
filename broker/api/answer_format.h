// The JSON of answers, plain and as server-sent events. Private to broker/api.
//
// What all events of one answer share is written once, so an event costs no more than its text.
// Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "broker/api/request.h"

namespace broker {

/// The whole of one choice. Both borrow.
struct Choice {
  std::string_view text;
  std::string_view finish_reason;  // "stop" or "length"
};

struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

struct AnswerHead {
  std::string id = {};
  int64_t created = 0;
  std::string model = {};
  uint64_t seed = 0;
  Endpoint endpoint = Endpoint::kCompletions;
  bool include_usage = false;  // events say "usage":null until the one that has it
};

class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerHead head);

  /// Events, each "data: {…}\n\n".
  std::string role_event(size_t index) const;
  std::string text_event(size_t index, std::string_view text) const;
  std::string end_event(size_t index, std::string_view finish_reason) const;
  std::string usage_event(const AnswerUsage& usage) const;

  /// The plain answer, choices in order.
  std::string json(const std::vector<Choice>& choices, const AnswerUsage& usage) const;

 private:
  std::string event(size_t index, std::string_view content, std::string_view finish_reason) const;

  AnswerHead head_;
  std::string event_begin_;  // up to the choices
  std::string event_end_;    // after the choices
};

}  // namespace broker
