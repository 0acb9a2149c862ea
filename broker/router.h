// Between requests and the groups that can answer them: gives each to one group, and knows it by an
// id of its own.
//
// Plain logic over Brokers; reads no clock and no socket. A request that waits, because its group
// was lost or because another one runs alone there, waits a while for its own group, whose cache
// has what it needs and which is usually back at once; then it goes on in another one that is
// ready, from the token it had come to and with the same answer. So input that crashes its workers
// finds its own group back first, and takes no other one with it: after two crashes in a row it
// must run alone and never moves. With one group nothing of this happens. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "broker/broker.h"
#include "broker/load_board.h"

namespace broker {

class Router {
 public:
  /// They must outlive it; at least one.
  explicit Router(std::vector<Broker*> groups);

  /// How long a request waits for its own group.
  static constexpr base::TimeNs kPatience = 2'000'000'000;

  bool ready() const;
  std::vector<GroupLoad> board() const;

  /// Starts it in the least loaded group; the request_id of the argument is ignored. Errors: as
  /// Broker::generate.
  base::Result<uint64_t> generate(proto::GenerateRequest request, base::TimeNs now);
  /// As Broker::cancel.
  void cancel(uint64_t request_id, base::TimeNs now);
  /// To be called with every event of the group of that index, in order: puts the id into it by
  /// which its request is known here, 0 if it is not.
  void on_event(size_t group, Event& event);
  /// Moves what has waited for too long. REQUIRES: on_event() has got all events there are.
  void on_tick(base::TimeNs now);

  /// The group that has the request now.
  std::optional<size_t> group_of(uint64_t request_id) const;

 private:
  struct Routed {
    size_t group = 0;
    uint64_t id = 0;                               // there
    std::optional<base::TimeNs> waits_since = {};  // as far as was looked at
  };

  void move(uint64_t id, Routed& routed, base::TimeNs now);

  const std::vector<Broker*> groups_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Routed> routed_;              // live ones
  std::vector<std::map<uint64_t, uint64_t>> ids_;  // [groups] their ids to ours
};

}  // namespace broker
