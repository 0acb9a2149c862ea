// One client's connection: requests one after the other, each read within limits and answered.
//
// Two coroutines: one reads all the time, so that it sees at once when the client leaves; the other
// serves what has come. They meet in a bounded buffer: bytes that come ahead of their turn wait
// there, and beyond its size in the client. Times are kept by ticks of the server.
// Private to the folder. Thread rule: the server's thread.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "broker/http/message_reader.h"
#include "broker/http/net.h"
#include "broker/http/ongoing.h"
#include "broker/http/response.h"
#include "broker/http/server.h"

namespace broker {

/// What the connections of a server share.
struct Front {
  Front(HttpOptions http_options, HttpParts http_parts)
      : options(std::move(http_options)), parts(std::move(http_parts)) {}

  const HttpOptions options;
  const HttpParts parts;
  asio::io_context io{1};
  asio::thread_pool desk{1};  // for what may block
  Tickets tickets;
  uint64_t body_bytes = 0;  // promised to bodies that are not cut into tokens yet
  bool draining = false;
  std::atomic<int> busy{0}, connections{0};  // written here, read by others, relaxed
};

/// Memory that is promised to the body of one request, until it is cut into tokens.
class BodyShare {
 public:
  BodyShare(uint64_t& total, uint64_t bytes) : total_(total), bytes_(bytes) { total_ += bytes_; }
  ~BodyShare() { total_ -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  void shrink_to(uint64_t bytes) {
    total_ -= bytes_ - bytes;
    bytes_ = bytes;
  }

 private:
  uint64_t& total_;
  uint64_t bytes_;
};

class Connection {
 public:
  /// `front` must outlive this.
  Connection(Front& front, asio::ip::tcp::socket socket);

  /// Both must have ended before this is destroyed; close() makes them end.
  Task<void> read();
  Task<void> serve();

  void on_tick(base::TimeNs now);
  void close();
  /// Ends after the request that is being served.
  void drain() { wakeup_.announce(); }

 private:
  static constexpr size_t kBufferBytesMax = 64 * 1024;
  static constexpr base::TimeNs kNever = INT64_MAX;

  enum class After { kNext, kClose };
  enum class Got { kAll, kEnd, kLate };
  /// What the log says about a request.
  struct Record {
    std::string method = {}, target = {};
    int status = 0;
    proto::Usage usage = {};
    base::TimeNs started = 0;
  };
  struct Job;

  // connection.cc
  base::TimeNs now() const { return front_.parts.clock.now(); }
  Task<bool> await_request();
  /// Puts what comes into `reader` until it leaves `state`.
  Task<Got> feed(MessageReader& reader, MessageReader::State state, base::TimeNs total,
                 base::TimeNs pause);
  Task<bool> write(std::string_view bytes);
  Task<void> linger();

  // exchange.cc
  Task<After> serve_one();
  Task<After> serve_request(MessageReader& reader, Manner& manner, Record& record);
  Task<After> refuse(Refusal refusal, Manner& manner, Record& record);
  Task<After> respond(Response response, const Manner& manner, Record& record);
  Task<After> tell_placement(Manner& manner, Record& record);
  Task<std::optional<Refusal>> read_body(MessageReader& reader, bool& ended);
  void log(const Record& record, const Manner& manner) const;

  // completion.cc
  struct Question {
    Endpoint endpoint = Endpoint::kCompletions;
    std::string body = {};
  };
  Task<After> complete(Question question, BodyShare& share, Manner& manner, Record& record);
  Task<void> do_job(Job& job);
  Task<After> stream(Ongoing& ongoing, Manner& manner, Record& record);
  Task<After> answer_at_once(Ongoing& ongoing, Manner& manner, Record& record);

  Front& front_;
  asio::ip::tcp::socket socket_;
  Wakeup wakeup_;  // of serve(): bytes, the end, a time that is over, a reply
  Wakeup room_;    // of read(): the buffer has room
  std::array<char, 16 * 1024> chunk_;
  std::string buffer_;     // what came and was not used
  bool gone_ = false;      // the client sends no more
  bool closed_ = false;    // we have closed
  bool unread_ = false;    // part of a request was left in the client
  bool late_ = false;      // read_deadline_ has passed
  bool ping_due_ = false;  // ping_at_ has passed
  bool polls_ = false;     // serve() looks for something at every tick
  base::TimeNs read_deadline_ = kNever, write_deadline_ = kNever, ping_at_ = kNever;
};

}  // namespace broker
