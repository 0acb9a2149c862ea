// One connection between two ranks: a ZeroMQ PAIR socket and what its monitor says of it.
//
// Sends and receives never block. Queues are bounded, unsent messages are dropped at the end
// (LINGER 0), nothing is queued for a peer that is not connected (IMMEDIATE), and a message over
// the limit ends the connection. A peer that dies is seen when the system closes its end, after
// what it had sent before. Only ipc:// so far: tcp:// is refused until it is authenticated.
// Thread rule: one thread at a time, with a lock or another full fence between two of them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace proto {

/// Owns ZeroMQ's own thread. Outlives its sockets.
class ZmqContext {
 public:
  /// That thread runs on `cpus`; if there are none, where the calling thread may. Best are those of
  /// the threads that wait for it: one of them is free just then.
  static base::Result<std::unique_ptr<ZmqContext>> create(std::span<const int> cpus = {});
  ~ZmqContext();
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  ZmqContext();
  std::unique_ptr<Impl> impl_;
};

class PairSocket {
 public:
  enum class Side { kBinds, kConnects };
  struct Options {
    std::string endpoint;  // ipc://PATH
    Side side = Side::kConnects;
    size_t message_bytes_max = 0;
    int queue_max = 16;  // messages each way
  };
  /// Binds (the socket file has mode 0600) or begins to connect to what need not be there yet.
  /// Errors: kInvalidArgument, kSystem naming the endpoint.
  static base::Result<std::unique_ptr<PairSocket>> open(ZmqContext& context,
                                                        const Options& options);
  ~PairSocket();

  /// False if it cannot be queued: nobody is connected, or the queue is full.
  bool send(std::span<const std::byte> message);
  /// One message to many, copied once. The first socket that refused it, or nullptr.
  static PairSocket* send_all(std::span<PairSocket* const> sockets,
                              std::span<const std::byte> message);

  /// The next message; its bytes stay until the next call. Several frames count as one message
  /// each.
  std::optional<std::span<const std::byte>> receive();

  enum class Link { kWaiting, kUp, kDown };
  /// Whether the peer is there. Once down, always down.
  Link link();

  // For poll(2), POLLIN. The first is a hint that receive() may have something: sleep on it only
  // after receive() said no. The second one tells that link() may have changed.
  int descriptor() const;
  int link_descriptor() const;

  /// Takes the name of a bound socket away: nobody else can connect.
  void hide();

 private:
  struct Impl;
  explicit PairSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace proto
