#include "broker/http/message_reader.h"

#include <algorithm>
#include <boost/beast/http.hpp>
#include <cctype>

#include "base/cat.h"

namespace broker {

namespace {

namespace beast = boost::beast;

// Beast asserts that it never sees less of a last chunk ("0", two line ends), wherever the network
// cuts it. So what may be the beginning of one waits for the rest.
constexpr size_t kLastChunkBytes = 5;

bool begins_last_chunk(std::string_view bytes) {
  return bytes.size() < kLastChunkBytes && (bytes[0] == '0' || bytes[0] == '\r');
}

std::string lower(beast::string_view text) {
  std::string out(text.data(), text.size());
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string text_of(beast::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

struct MessageReader::Parser {
  beast::http::request_parser<beast::http::string_body> message;
};

std::string_view RequestHead::field(std::string_view name) const {
  for (const auto& [key, value] : fields)
    if (key == name) return value;
  return {};
}

int RequestHead::count(std::string_view name) const {
  return static_cast<int>(std::count_if(fields.begin(), fields.end(),
                                        [&](const auto& entry) { return entry.first == name; }));
}

MessageReader::MessageReader(MessageLimits limits)
    : limits_(limits), parser_(std::make_unique<Parser>()) {
  auto& message = parser_->message;
  message.header_limit(static_cast<uint32_t>(limits.head_bytes_max));
  // A known length is compared by check_head(), after all that concerns the rest of the head.
  message.body_limit(boost::none);
  message.eager(false);
}

MessageReader::~MessageReader() = default;

size_t MessageReader::put(std::string_view bytes) {
  auto& message = parser_->message;
  size_t used = 0;
  while (state_ != State::kDone && state_ != State::kFailed && used < bytes.size()) {
    const bool in_head = state_ == State::kHead;
    if (!in_head && head_.chunked && begins_last_chunk(bytes.substr(used))) break;
    beast::error_code error;
    const size_t count =
        message.put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
    used += count;
    if (in_head && (head_bytes_ += count) > limits_.head_bytes_max) {
      // The parser's own limit is for what came at one time.
      fail(431, base::cat("the header is larger than ", limits_.head_bytes_max, " bytes"));
      break;
    }
    if (error == beast::http::error::need_more) {
      // What has to stand together, a line of the head or of a chunk, may not outgrow the head.
      if (bytes.size() - used >= limits_.head_bytes_max)
        fail(in_head ? 431 : 400, "a line of the request is too long");
      break;
    }
    if (error == beast::http::error::header_limit) {
      fail(431, base::cat("the header is larger than ", limits_.head_bytes_max, " bytes"));
    } else if (error == beast::http::error::body_limit) {
      fail(413, base::cat("the body is larger than ", limits_.body_bytes_max,
                          " bytes, the limit of this server"));
    } else if (error == beast::http::error::bad_version) {
      fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    } else if (error) {
      fail(400, base::cat("the request is not valid HTTP: ", error.message()));
    } else if (in_head) {
      if (!message.is_header_done()) continue;
      take_head();
      break;
    } else if (message.is_done()) {
      state_ = State::kDone;
    } else if (count == 0) {
      break;
    }
  }
  return used;
}

void MessageReader::take_head() {
  auto& message = parser_->message;
  const auto& request = message.get();
  head_.method = text_of(request.method_string());
  head_.target = text_of(request.target());
  head_.minor_version = static_cast<int>(request.version() % 10);
  head_.keep_alive = message.keep_alive();
  head_.chunked = message.chunked();
  if (const auto length = message.content_length()) head_.content_length = *length;
  for (const auto& field : request)
    head_.fields.emplace_back(lower(field.name_string()), text_of(field.value()));
  has_head_ = true;
  if (auto wrong = check_head()) {
    state_ = State::kFailed;
    error_ = std::move(*wrong);
    return;
  }
  message.body_limit(limits_.body_bytes_max);
  message.eager(true);
  state_ = head_.has_body() ? State::kBody : State::kDone;
}

std::optional<ApiError> MessageReader::check_head() const {
  const auto wrong = [](int status, std::string sentence) {
    return ApiError{.status = status, .message = std::move(sentence)};
  };
  if (head_.target.size() > limits_.target_bytes_max)
    return wrong(414, base::cat("the address is longer than ", limits_.target_bytes_max, " bytes"));
  if (head_.fields.size() > limits_.fields_max)
    return wrong(431, base::cat("the request has ", head_.fields.size(), " header fields, at most ",
                                limits_.fields_max, " are read"));
  const int hosts = head_.count("host");
  if (hosts > 1 || (hosts == 0 && head_.minor_version >= 1))
    return wrong(400, "the request needs exactly one Host header");
  // Another coding would hide where the message ends.
  if (head_.count("transfer-encoding") > 0 &&
      (head_.count("transfer-encoding") > 1 || !head_.chunked || head_.minor_version == 0 ||
       lower(beast::string_view(head_.field("transfer-encoding"))) != "chunked"))
    return wrong(400, "the only Transfer-Encoding that is understood is chunked, in HTTP/1.1");
  if (head_.content_length.value_or(0) > limits_.body_bytes_max)
    return wrong(413, base::cat("the body of ", *head_.content_length,
                                " bytes is larger than the limit of ", limits_.body_bytes_max));
  return std::nullopt;
}

void MessageReader::fail(int status, std::string_view sentence) {
  state_ = State::kFailed;
  error_ = {.status = status, .message = std::string(sentence)};
}

std::string MessageReader::take_body() {
  return std::move(parser_->message.get().body());
}

}  // namespace broker
