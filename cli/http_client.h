// Asks a numoe server on this or another machine one question. The seam to Boost.Beast and Asio.
//
// Plain HTTP/1.1, one request on a connection of its own. Thread rule: one thread, which waits.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace cli {

/// Where a server is: "http://HOST[:PORT]", without a path.
struct ServerAddress {
  std::string host;
  int port = 80;
  std::string url() const;
};
/// Errors: kInvalidArgument, also for https.
base::Result<ServerAddress> parse_address(std::string_view url);

struct HttpQuestion {
  ServerAddress address = {};
  std::string path = "/";
  std::string api_key = {};  // empty: none is sent
  base::TimeNs timeout = 70'000'000'000;
  /// Asked every 50 ms; true gives up with kCancelled. May be empty.
  std::function<bool()> give_up = {};
};

struct HttpReply {
  int status = 0;
  std::string body;
};

/// Errors: kUnavailable (nobody listens, no such host), kTimeout, kCancelled, kPeerLost.
base::Result<HttpReply> http_get(const HttpQuestion& question);

}  // namespace cli
