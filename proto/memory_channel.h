// Channels of one thread: a network in memory for tests, with loss, delay, repetition, cut
// connections and full queues at will.
//
// The network must outlive its channels and the clock the network. Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/channel.h"

namespace proto {

/// What becomes of one message.
struct Fate {
  /// How long it takes; none: it is lost; several: it arrives as often. Messages that take
  /// differently long overtake each other.
  std::vector<base::TimeNs> delays = {0};
  bool disconnected = false;  // send() fails with kPeerLost
};

class MemoryNetwork {
 public:
  struct Options {
    size_t queue_max = 1000;  // messages on their way to one receiver
    /// Unset: all arrive at once.
    std::function<Fate(std::string_view from, std::string_view to)> fate = {};
  };

  MemoryNetwork(const base::Clock& clock, Options options) : clock_(clock), options_(options) {}

  std::unique_ptr<Channel> broker() { return connect(std::string(kBroker)); }
  /// Connects a worker, or the next incarnation of one, under its peer name.
  std::unique_ptr<Channel> connect(std::string name);

  /// When `name` gets its next message; nothing if none is on its way.
  std::optional<base::TimeNs> next_arrival(std::string_view name) const;

 private:
  class Port;
  struct Queue {
    std::multimap<base::TimeNs, Received> messages;  // by arrival
  };

  const base::Clock& clock_;
  Options options_;
  std::map<std::string, Queue, std::less<>> queues_;
};

}  // namespace proto
