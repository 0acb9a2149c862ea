// The loop's side of the gate: which generations of the groups belong to which ticket.
//
// Plain logic between a Gate and a Router; reads no clock and no socket. Every submission is
// answered: accepted or refused, and after accepted each slot ends exactly once, when its broker
// says so or with the error of lose_all(). Thread rule: the loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "broker/gate.h"
#include "broker/router.h"

namespace broker {

class Reception {
 public:
  /// `gate` must outlive this. `slots_max` generations are under way at one time, waiting ones
  /// included.
  Reception(Gate& gate, int slots_max) : gate_(gate), slots_max_(slots_max) {}

  /// Takes what waits at the gate. `router` is nullptr while there is none. One that has no group
  /// at present refuses submissions, and ends what is cancelled.
  void take(Router* router, base::TimeNs now);
  /// Hands a token event on that has passed the router; ignores all others.
  void on_event(Event& event);
  /// All live slots end with `error`.
  void lose_all(const base::Error& error);

  /// Generations that have not ended.
  int live_slots() const { return static_cast<int>(live_.size()); }

 private:
  struct Slot {
    uint64_t ticket = 0;
    size_t index = 0;
    uint64_t chunks = 0;  // so far
  };

  void admit(Submission submission, Router* router, base::TimeNs now);

  Gate& gate_;
  const int slots_max_;
  std::map<uint64_t, Slot> live_;                       // by request id of the router
  std::map<uint64_t, std::map<size_t, uint64_t>> ids_;  // ticket -> slot -> request id, live ones
};

}  // namespace broker
