// The half of Connection that serves one request: what is checked in which order, and the plain
// answers.
#include <ctime>
#include <utility>

#include "base/cat.h"
#include "broker/http/connection.h"
#include "broker/http/report_pages.h"

namespace broker {

namespace {

/// Counts a request that is being answered, however that ends.
class Busy {
 public:
  explicit Busy(std::atomic<int>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Busy() { count_.fetch_sub(1, std::memory_order_relaxed); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<int>& count_;
};

std::string new_request_id(const HttpParts& parts) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id = "req-";
  for (uint64_t bits = parts.random_bits(), i = 0; i < 16; i++, bits >>= 4)
    id += kDigits[bits & 15];
  return id;
}

// How long the workers may take: they answer between steps, and look at every page.
constexpr base::TimeNs kPlacementTime = 60 * kSecond;

bool is_completion(Route route) {
  return route == Route::kCompletions || route == Route::kChatCompletions;
}

}  // namespace

Task<Connection::After> Connection::serve_one() {
  const HttpTimes& times = front_.options.times;
  MessageReader reader(front_.options.limits);
  Record record{.started = now()};
  Manner manner{.keep_alive = false};
  const Got got = co_await feed(reader, MessageReader::State::kHead, times.head, times.head);
  if (got == Got::kEnd) co_return After::kClose;
  const Busy busy(front_.busy);
  if (reader.has_head()) {
    const RequestHead& head = reader.head();
    record.method = head.method;
    record.target = head.target;
    manner.minor_version = head.minor_version;
    manner.keep_alive = head.keep_alive && !front_.draining;
    manner.head_only = head.method == "HEAD";
    manner.request_id = request_id_of(head);
  }
  manner.now = std::time(nullptr);
  if (manner.request_id.empty()) manner.request_id = new_request_id(front_.parts);
  After after = After::kClose;
  if (got == Got::kLate) {
    Refusal late{.error = {.status = 408, .message = "the header of the request came too slowly"}};
    unread_ = true;
    after = co_await refuse(std::move(late), manner, record);
  } else {
    after = co_await serve_request(reader, manner, record);
  }
  log(record, manner);
  co_return after;
}

Task<Connection::After> Connection::serve_request(MessageReader& reader, Manner& manner,
                                                  Record& record) {
  // Whatever is refused before its body was read costs the connection.
  unread_ = reader.state() != MessageReader::State::kDone;
  if (reader.state() == MessageReader::State::kFailed) {
    Refusal failed{.error = reader.error()};
    co_return co_await refuse(std::move(failed), manner, record);
  }
  Destination destination;
  if (auto refusal = check_request(reader.head(), front_.parts.keys, {}, destination))
    co_return co_await refuse(std::move(*refusal), manner, record);
  const Expectation expectation = expectation_of(reader.head());
  if (expectation == Expectation::kUnknown) {
    Refusal unknown{
        .error = {.status = 417, .message = "the only expectation known is 100-continue"}};
    co_return co_await refuse(std::move(unknown), manner, record);
  }
  const GroupStatus status = front_.parts.gate.status();
  if (is_completion(destination.route))
    if (auto refusal = not_ready(status))
      co_return co_await refuse(std::move(*refusal), manner, record);
  const RequestHead& head = reader.head();
  const uint64_t promised = !head.has_body() ? 0
                            : head.chunked   ? front_.options.limits.body_bytes_max
                                             : *head.content_length;
  if (front_.body_bytes + promised > front_.options.bodies_bytes_max) {
    Refusal full{.error = {.status = 503,
                           .message = "too many large requests at once; try again later",
                           .type = "server_error",
                           .code = "bodies_full"}};
    co_return co_await refuse(std::move(full), manner, record);
  }
  BodyShare share(front_.body_bytes, promised);
  if (reader.state() == MessageReader::State::kBody) {
    if (expectation == Expectation::kContinue && buffer_.empty() &&
        !co_await write("HTTP/1.1 100 Continue\r\n\r\n"))
      co_return After::kClose;
    bool ended = false;
    auto refusal = co_await read_body(reader, ended);
    if (ended) co_return After::kClose;
    if (refusal) co_return co_await refuse(std::move(*refusal), manner, record);
    unread_ = false;
  }
  std::string body = reader.take_body();
  share.shrink_to(body.size());
  const ServedModel& model = front_.parts.model;
  switch (destination.route) {
    case Route::kLive: co_return co_await respond(live_page(status), manner, record);
    case Route::kReady: co_return co_await respond(ready_page(status), manner, record);
    case Route::kHealth: co_return co_await respond(health_page(status), manner, record);
    case Route::kStatus:
      co_return co_await respond(status_page(model, status, front_.parts.gate.server()), manner,
                                 record);
    case Route::kExperts:
      co_return co_await respond(experts_page(front_.parts.gate.server()), manner, record);
    case Route::kPlacement: co_return co_await tell_placement(manner, record);
    case Route::kModels: co_return co_await respond(models_page(model, status), manner, record);
    case Route::kModel:
      co_return co_await respond(model_page(model, status, destination.model), manner, record);
    case Route::kCompletions:
    case Route::kChatCompletions: break;
  }
  // Named: gcc 12 destroys a braced temporary of a co_await twice.
  Question question{destination.route == Route::kCompletions ? Endpoint::kCompletions
                                                             : Endpoint::kChatCompletions,
                    std::move(body)};
  co_return co_await complete(std::move(question), share, manner, record);
}

Task<Connection::After> Connection::tell_placement(Manner& manner, Record& record) {
  Gate& gate = front_.parts.gate;
  const base::TimeNs end = now() + kPlacementTime;
  const uint64_t round = gate.ask_placement();
  PlacementAnswer answer;
  std::optional<Refusal> refusal;
  while (!closed_ && !gone_) {
    answer = gate.placement();
    if (answer.round >= round) break;
    refusal = not_ready(gate.status());
    if (refusal) break;
    if (now() >= end) {
      refusal = Refusal{
          .error = {.status = 504,
                    .message = "the workers did not tell in time where their memory lies; they "
                               "may be in a long step, try again later",
                    .type = "server_error"}};
      break;
    }
    // Ticks look again: answers of this kind are rare and announce nothing.
    polls_ = true;
    co_await wakeup_.wait();
    polls_ = false;
  }
  if (refusal) co_return co_await refuse(std::move(*refusal), manner, record);
  if (answer.round < round) co_return After::kClose;  // the client has left
  co_return co_await respond(placement_page(answer.groups), manner, record);
}

Task<std::optional<Refusal>> Connection::read_body(MessageReader& reader, bool& ended) {
  const HttpTimes& times = front_.options.times;
  const Got got = co_await feed(reader, MessageReader::State::kBody, times.body, times.body_pause);
  ended = got == Got::kEnd;
  if (got == Got::kLate)
    co_return Refusal{
        .error = {.status = 408, .message = "the body of the request came too slowly"}};
  if (reader.state() == MessageReader::State::kFailed) co_return Refusal{.error = reader.error()};
  co_return std::nullopt;
}

Task<Connection::After> Connection::refuse(Refusal refusal, Manner& manner, Record& record) {
  if (unread_) manner.keep_alive = false;
  record.status = refusal.error.status;
  const std::string text = serialise(refusal, front_.parts.gate.status().retry_seconds, manner);
  const bool sent = co_await write(text);
  co_return sent&& manner.keep_alive ? After::kNext : After::kClose;
}

Task<Connection::After> Connection::respond(Response response, const Manner& manner,
                                            Record& record) {
  record.status = response.status;
  const std::string text = serialise(response, manner);
  const bool sent = co_await write(text);
  co_return sent&& manner.keep_alive ? After::kNext : After::kClose;
}

void Connection::log(const Record& record, const Manner& manner) const {
  if (!front_.options.log_requests) return;
  constexpr size_t kTargetBytesMax = 100;
  std::string line = base::cat(manner.request_id, " ", record.method, " ",
                               record.target.substr(0, kTargetBytesMax), " ", record.status);
  if (record.usage.prompt_tokens > 0)
    line +=
        base::cat(" ", record.usage.prompt_tokens, "+", record.usage.generated_tokens, " tokens");
  front_.parts.log.info(base::cat(line, " ", (now() - record.started) / 1'000'000, " ms"));
}

}  // namespace broker
