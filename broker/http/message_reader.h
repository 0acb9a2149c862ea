// Bytes of a connection to one HTTP/1 request: head first, then body, within limits.
//
// The seam to Boost.Beast's parser. No input or output here: put() is given what has arrived and
// says how much of it was used; what is left must be given again together with more. Any bytes lead
// to a request or to an error with the status that the client is told. Thread rule: one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "broker/api/api_error.h"

namespace broker {

struct MessageLimits {
  size_t head_bytes_max = 32 * 1024;  // request line and header fields
  size_t fields_max = 100;
  size_t target_bytes_max = 8 * 1024;
  uint64_t body_bytes_max = uint64_t{32} << 20;
};

/// What stands before the body.
struct RequestHead {
  std::string method, target;
  int minor_version = 1;  // of HTTP/1
  bool keep_alive = true;
  bool chunked = false;
  std::optional<uint64_t> content_length = {};
  std::vector<std::pair<std::string, std::string>> fields = {};  // names in lower case

  /// The value of the first field of that name (in lower case); empty if there is none.
  std::string_view field(std::string_view name) const;
  int count(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

class MessageReader {
 public:
  enum class State { kHead, kBody, kDone, kFailed };

  explicit MessageReader(MessageLimits limits);
  ~MessageReader();
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  State state() const { return state_; }
  /// Uses some of `bytes` and returns how many. Stops after the head, so that the caller can look
  /// at it before any of the body is taken, and after the message.
  size_t put(std::string_view bytes);

  /// REQUIRES: state kBody or kDone, or kFailed after the head.
  const RequestHead& head() const { return head_; }
  bool has_head() const { return has_head_; }
  /// REQUIRES: state kDone.
  std::string take_body();
  /// REQUIRES: state kFailed. The connection is of no further use.
  const ApiError& error() const { return error_; }

 private:
  struct Parser;  // hides Beast, which takes long to compile

  void take_head();
  void fail(int status, std::string_view sentence);
  std::optional<ApiError> check_head() const;

  const MessageLimits limits_;
  std::unique_ptr<Parser> parser_;
  State state_ = State::kHead;
  bool has_head_ = false;
  size_t head_bytes_ = 0;  // used so far
  RequestHead head_;
  ApiError error_;
};

}  // namespace broker
