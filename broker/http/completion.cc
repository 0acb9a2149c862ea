// The half of Connection that generates: prompts at the desk, the gate, and the answer at once or
// as a stream of events.
#include <ctime>
#include <exception>
#include <utility>

#include "base/cat.h"
#include "broker/http/connection.h"

namespace broker {

/// What may block: reading a body, the chat template, cutting text into tokens.
struct Connection::Job {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string body;
  PromptLimits limits;
  uint64_t seed = 0;
  std::optional<ApiError> error = {};
  CompletionRequest request = {};
  std::vector<std::vector<int32_t>> prompts = {};
  std::atomic<bool> abandoned = false;  // set by the server's thread: the client has left
  bool done = false;                    // of the server's thread

  std::optional<ApiError> run(const Front& front) {
    if (auto wrong = parse_request(endpoint, body, front.options.defaults, seed, request))
      return wrong;
    body = {};
    const std::string served[] = {front.parts.model.id};
    if (auto wrong = check_model(request, served)) return wrong;
    const size_t prompt_count = endpoint == Endpoint::kCompletions ? request.prompts.size() : 1;
    const size_t slots = prompt_count * static_cast<size_t>(request.choice_count);
    if (slots > static_cast<size_t>(front.options.slots_max))
      return ApiError{.message = base::cat("the request asks for ", slots,
                                           " answers at once, this server gives at most ",
                                           front.options.slots_max),
                      .param = "n"};
    return front.parts.prompts.read(request, limits, prompts);
  }
};

Task<Connection::After> Connection::complete(Question question, BodyShare& share, Manner& manner,
                                             Record& record) {
  const Endpoint endpoint = question.endpoint;
  const GroupStatus status = front_.parts.gate.status();
  Job job{.endpoint = endpoint,
          .body = std::move(question.body),
          .limits = {.context = status.context, .vocabulary = status.vocabulary},
          .seed = front_.parts.random_bits()};
  co_await do_job(job);
  share.shrink_to(0);
  if (gone_) co_return After::kClose;
  if (job.error) {
    Refusal wrong{.error = std::move(*job.error)};
    co_return co_await refuse(std::move(wrong), manner, record);
  }
  const bool streams = job.request.stream;
  const char* prefix = endpoint == Endpoint::kCompletions ? "cmpl-" : "chatcmpl-";
  AnswerOptions options{.id = base::cat(prefix, front_.parts.random_bits()),
                        .created = static_cast<int64_t>(std::time(nullptr)),
                        .model = front_.parts.model.id,
                        .end_tokens = front_.parts.end_tokens};
  Answer answer(std::move(job.request), std::move(job.prompts), front_.parts.tokenizer,
                std::move(options));
  OngoingOptions waiting{.events_bytes_max = front_.options.events_bytes_max,
                         .wake = [this] { wakeup_.announce(); }};
  Ongoing ongoing(front_.parts.gate, front_.tickets, std::move(answer), std::move(waiting));
  ongoing.submit();
  const After after = streams ? co_await stream(ongoing, manner, record)
                              : co_await answer_at_once(ongoing, manner, record);
  record.usage = ongoing.usage();
  co_return after;
}

Task<void> Connection::do_job(Job& job) {
  asio::post(front_.desk, [this, &job] {
    try {
      if (!job.abandoned.load(std::memory_order_relaxed)) job.error = job.run(front_);
    } catch (const std::exception& error) {
      job.error = ApiError{.status = 500,
                           .message = base::cat("reading the request failed: ", error.what()),
                           .type = "server_error"};
    }
    asio::post(front_.io, [this, &job] {
      job.done = true;
      wakeup_.announce();
    });
  });
  // To the end, whoever has left: the other thread holds on to this frame.
  while (!job.done) {
    if (gone_) job.abandoned.store(true, std::memory_order_relaxed);
    co_await wakeup_.wait();
  }
}

Task<Connection::After> Connection::answer_at_once(Ongoing& ongoing, Manner& manner,
                                                   Record& record) {
  while (!ongoing.finished() && !gone_) co_await wakeup_.wait();
  if (!ongoing.finished()) co_return After::kClose;
  if (ongoing.failure()) {
    Refusal failure = *ongoing.failure();
    co_return co_await refuse(std::move(failure), manner, record);
  }
  Response response{.body = ongoing.answer().json()};
  co_return co_await respond(std::move(response), manner, record);
}

// Until the first event or the first ping an error is an ordinary answer with its status; after
// that it is an event, and the connection ends without [DONE].
Task<Connection::After> Connection::stream(Ongoing& ongoing, Manner& manner, Record& record) {
  const base::TimeNs ping = front_.options.times.ping;
  bool begun = false;
  ping_due_ = false;
  ping_at_ = now() + ping;
  // Without chunks nothing but the end of the connection ends the body.
  if (manner.minor_version == 0) manner.keep_alive = false;
  while (!gone_) {
    const bool failed = ongoing.failure().has_value();
    if (failed && !begun) {
      Refusal failure = *ongoing.failure();
      ping_at_ = kNever;
      co_return co_await refuse(std::move(failure), manner, record);
    }
    std::string bytes = ongoing.take_events();
    const bool last = ongoing.finished();
    if (failed)
      bytes += base::cat("data: ", error_json(ongoing.failure()->error), "\n\n");
    else if (last)
      bytes += ongoing.answer().closing();
    if (bytes.empty() && ping_due_) bytes = ": ping\n\n";
    if (bytes.empty()) {
      co_await wakeup_.wait();
      continue;
    }
    std::string text;
    if (!begun) {
      text = stream_head(manner);
      bytes.insert(0, ongoing.answer().opening());
      record.status = 200;
      begun = true;
    }
    text += stream_part(bytes, manner);
    if (last) text += stream_end(manner);
    ping_due_ = false;
    ongoing.set_writing(true);
    const bool written = co_await write(text);
    ongoing.set_writing(false);
    if (!written) break;
    ping_at_ = now() + ping;
    if (last) {
      ping_at_ = kNever;
      co_return failed || !manner.keep_alive ? After::kClose : After::kNext;
    }
  }
  ping_at_ = kNever;
  co_return After::kClose;
}

}  // namespace broker
