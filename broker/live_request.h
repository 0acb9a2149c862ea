// What a broker keeps of a request between its start and its last event.
//
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "broker/blame.h"
#include "proto/messages.h"

namespace broker {

struct LiveRequest {
  proto::Body request;  // as sent, for repeating it
  std::string trace_id;
  std::vector<int32_t> tokens;  // prompt and so far
  size_t prompt_tokens = 0;     // of `tokens`, the first ones
  uint64_t next_index = 0;
  uint64_t acknowledged = 0;  // chunks
  base::TimeNs unacknowledged_since = 0;
  base::TimeNs asked_at = 0;  // for the last time
  int repeats = 0;            // of the request: each waits twice as long
  bool sent = false;          // to the leader of the present group
  bool answered = false;      // that leader has it
  bool cancelling = false;
  Blame blame;

  bool generates() const { return std::holds_alternative<proto::GenerateRequest>(request); }
  uint64_t generated() const { return tokens.size() - prompt_tokens; }
};

}  // namespace broker
