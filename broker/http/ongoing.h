// One completion under way: its answer, what the gate said, and the events that wait to be sent.
//
// Knows nothing of sockets. Whoever waits for it is woken after each reply. The destructor cancels
// what has not ended, so a client that leaves takes its generations with it, whatever state they
// are in. Thread rule: the server's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "broker/api/answer.h"
#include "broker/gate.h"
#include "broker/http/rules.h"

namespace broker {

class Ongoing;

/// Who waits for which ticket.
struct Tickets {
  std::map<uint64_t, Ongoing*> waiting;
  uint64_t last = 0;

  /// Replies nobody waits for any more are dropped.
  void deliver(Reply reply);
};

struct OngoingOptions {
  size_t events_bytes_max = size_t{1} << 20;  // that wait for a client that does not read
  std::function<void()> wake = {};            // after each reply
};

class Ongoing {
 public:
  /// `gate` and `tickets` must outlive this.
  Ongoing(Gate& gate, Tickets& tickets, Answer answer, OngoingOptions options);
  ~Ongoing();
  Ongoing(const Ongoing&) = delete;
  Ongoing& operator=(const Ongoing&) = delete;

  void submit();
  void on_reply(Reply reply);

  /// The gate has said whether it takes the request.
  bool decided() const { return accepted_ || failure_.has_value(); }
  /// Nothing more will come: it is complete, or has failed.
  bool finished() const { return failure_.has_value() || answer_.finished(); }
  /// Why there is no answer, or only a part of one.
  const std::optional<Refusal>& failure() const { return failure_; }

  std::string take_events() { return std::exchange(events_, {}); }
  /// The client is being written to: only then events that wait say that it is slow.
  void set_writing(bool writing) { writing_ = writing; }
  bool has_events() const { return !events_.empty(); }
  const Answer& answer() const { return answer_; }
  /// Of all slots that have ended.
  proto::Usage usage() const { return usage_; }

 private:
  void fail(Refusal failure);

  Gate& gate_;
  Tickets& tickets_;
  const OngoingOptions options_;
  Answer answer_;
  uint64_t ticket_ = 0;
  size_t live_slots_ = 0;  // that the loop has not ended
  bool accepted_ = false;
  bool writing_ = false;
  std::optional<Refusal> failure_;
  std::string events_;
  proto::Usage usage_;
};

}  // namespace broker
