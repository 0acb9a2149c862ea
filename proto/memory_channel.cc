#include "proto/memory_channel.h"

#include "base/cat.h"
#include "base/check.h"

namespace proto {

class MemoryNetwork::Port final : public Channel {
 public:
  Port(MemoryNetwork& network, std::string name) : network_(network), name_(std::move(name)) {}
  ~Port() override { network_.queues_.erase(name_); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  base::Status send(std::string_view peer, Message message) override {
    for (const auto& frame : message.frames)
      if (frame.size() > kMessageBytesMax)
        return base::Error{base::Code::kInvalidArgument,
                           base::cat("a frame of ", frame.size(), " bytes, at most ",
                                     kMessageBytesMax, " can be sent")};
    const auto queue = network_.queues_.find(peer);
    if (queue == network_.queues_.end())
      return base::Error{base::Code::kPeerLost, base::cat(peer, " is not connected")};
    if (queue->second.messages.size() >= network_.options_.queue_max)
      return base::Error{base::Code::kUnavailable, base::cat("the queue to ", peer, " is full")};
    const auto& decide = network_.options_.fate;
    const Fate fate = decide ? decide(name_, peer) : Fate();
    if (fate.disconnected)
      return base::Error{base::Code::kPeerLost, base::cat(peer, " is not connected")};
    for (const base::TimeNs delay : fate.delays)
      queue->second.messages.emplace(network_.clock_.now() + delay, Received{name_, message});
    return {};
  }

  std::optional<Received> receive() override {
    auto& messages = network_.queues_.find(name_)->second.messages;
    if (messages.empty() || messages.begin()->first > network_.clock_.now()) return std::nullopt;
    Received received = std::move(messages.begin()->second);
    messages.erase(messages.begin());
    return received;
  }

  bool wait(base::TimeNs, std::span<const int>) override { return has_message(); }

  bool has_message() override {
    const auto& messages = network_.queues_.find(name_)->second.messages;
    return !messages.empty() && messages.begin()->first <= network_.clock_.now();
  }

  int descriptor() const override { return -1; }

 private:
  MemoryNetwork& network_;
  const std::string name_;
};

std::unique_ptr<Channel> MemoryNetwork::connect(std::string name) {
  const bool fresh = queues_.try_emplace(name).second;
  CHECK(fresh, "two channels named ", name);
  return std::make_unique<Port>(*this, std::move(name));
}

std::optional<base::TimeNs> MemoryNetwork::next_arrival(std::string_view name) const {
  const auto queue = queues_.find(name);
  if (queue == queues_.end() || queue->second.messages.empty()) return std::nullopt;
  return queue->second.messages.begin()->first;
}

}  // namespace proto
