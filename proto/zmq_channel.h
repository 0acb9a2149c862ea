// Channels over ZeroMQ: ROUTER at the broker, DEALER at a worker.
//
// A worker connects under one routing id per incarnation (proto::peer_name), so the old connection
// of a restarted node cannot take its messages. Sends fail at once (ROUTER_MANDATORY, IMMEDIATE,
// explicit high-water marks), closing drops what is unsent (LINGER 0). Only ipc:// so far.
// Thread rule: one thread, of one process (never use a channel after fork).
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "proto/channel.h"

namespace proto {

struct ZmqOptions {
  std::string endpoint;   // ipc://PATH
  int queue_max = 10000;  // messages to one peer that wait for being sent
};

/// Binds; the socket file has mode 0600. Errors: kSystem naming the endpoint.
base::Result<std::unique_ptr<Channel>> bind_broker(const ZmqOptions& options);

/// Connects to a broker, which need not be there yet. Errors: kSystem, kInvalidArgument.
base::Result<std::unique_ptr<Channel>> connect_worker(const ZmqOptions& options,
                                                      std::string_view peer_name);

inline constexpr std::string_view kIpc = "ipc://";
inline constexpr size_t kIpcPathBytesMax = 107;  // sockaddr_un::sun_path without its end

/// Errors: kInvalidArgument for what is no ipc://PATH of at most kIpcPathBytesMax. tcp:// is
/// refused until it is authenticated.
base::Status check_ipc_endpoint(const std::string& endpoint);

/// Where ipc sockets live: a directory of this user alone, so a short path is enough protection.
/// `base` is XDG_RUNTIME_DIR or empty; anything too long or not writable gives way to /tmp.
/// Errors: kSystem if the directory belongs to somebody else or is open to others.
base::Result<std::string> ipc_directory(const std::string& base);

/// A directory in it for one instance, by a hash of its name: the same at every call. Errors: as
/// above.
base::Result<std::string> ipc_instance_directory(const std::string& base, std::string_view name);

/// ipc:// endpoint for `name` (any text) in `directory`: a hash, so its length is fixed.
/// Errors: kInvalidArgument with path, length and limit.
base::Result<std::string> ipc_endpoint(const std::string& directory, std::string_view name);

}  // namespace proto
