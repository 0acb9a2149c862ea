// A real HTTP server on a loopback socket with the test in the place of the broker, and raw
// clients.
//
// The test decides what the gate answers and what time it is; every wait is for an event and
// bounded by half a minute. Thread rule: one thread (the server has its own).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/http/server.h"

namespace http_test {

using broker::kSecond;

/// A clock that the test moves while the server's threads read it.
class SharedClock final : public base::Clock {
 public:
  base::TimeNs now() const override { return now_.load(); }
  void advance(base::TimeNs ns) { now_.fetch_add(ns); }

 private:
  std::atomic<base::TimeNs> now_ = kSecond;
};

class LinesLog final : public base::Log {
 public:
  void write(base::Level level, std::string_view message) override;
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// The demo model's.
const model::Tokenizer& tokenizer();

struct HttpReply {
  int status = 0;
  std::string head, body;
  /// The value of a header field, as it was written; empty if there is none.
  std::string field(std::string_view name) const;
};

class Client {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int receive_buffer_bytes = 0;  // 0: as the system likes
  };
  explicit Client(int port) : Client(port, Options{}) {}
  Client(int port, const Options& options);
  ~Client() { close(); }
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

  bool connected() const { return connected_; }
  void send(std::string_view bytes);
  /// Everything up to and with `mark`, or up to the end.
  std::string read_until(std::string_view mark);
  /// One answer with a Content-Length, or a head alone after HEAD.
  HttpReply read_reply(bool has_body = true);
  /// Up to the end of the connection.
  std::string read_all();
  /// The server has closed; reads what is left before.
  bool is_at_end() { return read_all().empty(); }
  void finish_sending();
  void close();
  void reset();  // RST

 private:
  bool read_some();

  int socket_ = -1;
  bool connected_ = false;
  std::string received_;
};

class Server {
 public:
  struct Options {
    broker::HttpOptions http = {};
    std::string keys = {};  // as in a key file
    bool ready = true;
  };
  Server() : Server(Options{}) {}
  explicit Server(Options options);

  int port() const { return server->port(); }
  Client connect() const { return Client(port()); }
  /// Sends a request on a connection of its own, which is kept open.
  HttpReply ask(std::string_view request) const;

  void set_state(broker::GroupStatus::State state);
  /// The next request at the gate; a failure and an empty one after half a minute.
  broker::Submission next();
  broker::CancelSlots next_cancel();
  bool has_cancel();
  void accept(const broker::Submission& submission);
  void refuse(const broker::Submission& submission, broker::Reply::Kind kind, base::Error error);
  /// Tokens that spell `text`.
  void say(const broker::Submission& submission, std::string_view text, size_t slot = 0);
  void finish(const broker::Submission& submission, proto::Finish finish, base::Error error = {},
              size_t slot = 0);
  /// Waits until `done`, which nothing announces.
  template <class Done>
  static bool until(Done done) {
    return until_true([&] { return static_cast<bool>(done()); });
  }

  SharedClock clock;
  LinesLog log;
  broker::ApiKeys keys;
  std::unique_ptr<broker::Gate> gate;
  broker::PromptReader prompts{tokenizer(), nullptr};
  std::unique_ptr<broker::HttpServer> server;

 private:
  static bool until_true(const std::function<bool()>& done);
  bool take();

  broker::Gate::Taken taken_;
  std::map<uint64_t, uint64_t> chunks_;  // by ticket, of slot 0
};

/// "POST target HTTP/1.1" with `body` and further header lines, each ended by CRLF.
std::string post(std::string_view target, std::string_view body, std::string_view lines = {});
std::string get(std::string_view target, std::string_view lines = {});
/// A completion of "Once" with further fields of the body.
std::string completion(std::string_view fields = {}, std::string_view lines = {});
/// The same as a stream.
std::string stream(std::string_view fields = {});
/// The texts of all events in a chunked or plain body, joined.
std::string streamed_text(std::string_view body);

}  // namespace http_test
