// Answers as bytes: heads, plain answers, and the frames of a stream.
//
// Plain text from plain values; any thread.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "broker/http/rules.h"

namespace broker {

/// How the connection wants to be answered.
struct Manner {
  int minor_version = 1;   // of the request
  bool keep_alive = true;  // the connection stays open
  bool head_only = false;  // the request was HEAD
  std::string request_id = {};
  std::time_t now = 0;
};

struct Response {
  int status = 200;
  Fields fields = {};
  std::string body = {};  // JSON
};

/// A whole answer with its Content-Length.
std::string serialise(const Response& response, const Manner& manner);
/// The same for an error: its JSON object, and Retry-After for 429 and 503.
std::string serialise(const Refusal& refusal, int retry_seconds, const Manner& manner);

/// The head of a stream of events. It is chunked if the client knows that (HTTP/1.1), else it ends
/// with the connection.
std::string stream_head(const Manner& manner);
/// Bytes of a stream's body as they are sent.
std::string stream_part(std::string_view bytes, const Manner& manner);
std::string stream_end(const Manner& manner);

/// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::time_t time);

}  // namespace broker
