// The HTTP front: listens, reads requests, and answers them from what passes the gate.
//
// One thread runs all connections as coroutines, a second one does what may block (long prompts,
// chat templates), so that streams go on meanwhile. Everything is bounded by HttpOptions. A client
// that closes its connection, or only its sending half, has left: its generations are cancelled.
// Thread rule: any thread may call the functions here; the destructor ends both threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "broker/api/prompts.h"
#include "broker/api/request.h"
#include "broker/gate.h"
#include "broker/http/api_keys.h"
#include "broker/http/message_reader.h"
#include "broker/http/status_pages.h"
#include "model/tokenizer.h"

namespace broker {

inline constexpr base::TimeNs kSecond = 1'000'000'000;

struct HttpTimes {
  base::TimeNs idle = 75 * kSecond;        // between two requests
  base::TimeNs head = 15 * kSecond;        // from the first byte to the whole head
  base::TimeNs body_pause = 30 * kSecond;  // without a byte
  base::TimeNs body = 600 * kSecond;       // from head to end
  base::TimeNs write = 30 * kSecond;       // until 64 KiB are taken by a client
  base::TimeNs ping = 10 * kSecond;        // a stream that is silent says it is alive
  base::TimeNs linger = 2 * kSecond;       // reading on after an answer that ends a connection
  base::TimeNs tick = kSecond / 10;        // how exact all these are, in real time
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an IP address, or localhost
  int port = 0;                    // 0: any
  MessageLimits limits = {};
  HttpTimes times = {};
  size_t connections_max = 256;
  uint64_t bodies_bytes_max = uint64_t{256} << 20;  // of all requests that are being read
  size_t events_bytes_max = size_t{1} << 20;        // of one stream that is not read
  int slots_max = 64;                               // answers that one request may ask for
  RequestDefaults defaults = {};
  bool log_requests = false;
};

/// What the server works with; all must outlive it.
struct HttpParts {
  Gate& gate;
  const model::Tokenizer& tokenizer;
  PromptReader& prompts;  // used by the server's second thread only
  const ApiKeys& keys;
  base::Log& log;
  const base::Clock& clock;  // any thread
  ServedModel model = {};
  std::vector<int32_t> end_tokens = {};
  std::function<uint64_t()> random_bits = {};  // any thread
};

class HttpServer {
 public:
  /// Errors: kInvalidArgument (no address), kSystem (the port is taken), in a sentence. A host
  /// beyond this machine needs keys.
  static base::Result<std::unique_ptr<HttpServer>> start(HttpOptions options, HttpParts parts);
  /// Closes every connection.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// "http://127.0.0.1:8080"
  std::string url() const;
  /// No new connection and no further request on those there are.
  void drain();
  /// Requests that are being answered.
  int busy() const;
  int connections() const;

 private:
  class Impl;

  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace broker
