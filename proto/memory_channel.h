// Channels of one thread: a network in memory for tests, with loss, delay and full queues at will.
//
// The network must outlive its channels and the clock the network. Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/channel.h"

namespace proto {

class MemoryNetwork {
 public:
  struct Options {
    size_t queue_max = 1000;  // messages on their way to one receiver
    /// How long a message takes, or nothing if it is lost; unset: all arrive at once. Messages that
    /// take differently long overtake each other.
    std::function<std::optional<base::TimeNs>(std::string_view from, std::string_view to)> fate =
        {};
  };

  MemoryNetwork(const base::Clock& clock, Options options) : clock_(clock), options_(options) {}

  std::unique_ptr<Channel> broker() { return connect(std::string(kBroker)); }
  /// Connects a worker, or the next incarnation of one, under its peer name.
  std::unique_ptr<Channel> connect(std::string name);

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
