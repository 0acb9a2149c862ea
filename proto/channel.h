// The seam to whatever carries messages: ZeroMQ between processes, memory in tests.
//
// A channel never blocks in send(): a full queue or an unknown peer is an error at once, and the
// caller treats that peer as failed (a broker) or sends again later (a worker). Messages of one
// pair arrive in the order sent or not at all; nothing is delivered twice by this program's
// channels. Thread rule: one thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace proto {

/// frames[0] is an encoded envelope, the others are raw.
struct Message {
  std::vector<std::string> frames;
};

struct Received {
  std::string peer;  // who sent it; kBroker on a worker's side
  Message message;
};

/// The only peer a worker knows.
inline constexpr std::string_view kBroker = "broker";

inline constexpr size_t kFramesMax = 8;
inline constexpr size_t kNodeIdBytesMax = 40;
inline constexpr size_t kPeerBytesMax = 64;                   // a node id, "#" and an incarnation
inline constexpr size_t kMessageBytesMax = size_t{64} << 20;  // of one frame

class Channel {
 public:
  virtual ~Channel() = default;

  /// Errors: kPeerLost (nobody of that name is connected), kUnavailable (the queue is full),
  /// kInvalidArgument (too large).
  virtual base::Status send(std::string_view peer, Message message) = 0;

  /// The next message if there is one. Messages over the limits are dropped.
  virtual std::optional<Received> receive() = 0;

  /// Waits until receive() has a message, one of `descriptors` is readable, or the time is over.
  /// True unless the time is over.
  virtual bool wait(base::TimeNs timeout, std::span<const int> descriptors) = 0;

  /// Whether receive() would give something.
  virtual bool has_message() = 0;
  /// For who waits for several channels: after has_message() said no, with nothing sent since, this
  /// becomes readable before it would say yes. Readable alone means nothing. -1: there is none.
  virtual int descriptor() const = 0;
};

}  // namespace proto
