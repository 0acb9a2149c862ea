// Any body of a request: refused with status 400 and the field, or requests that a worker accepts.
#include <cmath>

#include "broker/api/answer.h"
#include "broker/api/json.h"
#include "proto/envelope.h"
#include "tests/fuzz/bytes.h"
#include "tests/model/tokenizer_support.h"

namespace {

using broker::CompletionRequest;
using broker::Endpoint;

void check_error(const broker::ApiError& error) {
  CHECK(error.status == 400 && !error.message.empty(), error.status, ": ", error.message);
  broker::Json object;
  CHECK(!broker::parse_json(broker::error_json(error), {}, object), "an error that is no JSON");
}

void check_json(const std::string& text) {
  broker::Json json;
  if (!text.empty())
    CHECK(!broker::parse_json(text, {.depth_max = 64}, json), "for the template, no JSON: ", text);
}

/// What the broker would send to a worker is what a worker may receive.
void check_messages(CompletionRequest request, const model::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts(std::max<size_t>(request.prompts.size(), 1), {1, 2, 3});
  const broker::Answer answer(std::move(request), std::move(prompts), tokenizer,
                              {.id = "cmpl-1", .created = 1, .model = "m", .end_tokens = {7, 8}});
  uint64_t id = 0;
  for (proto::GenerateRequest& generate : answer.generate_requests()) {
    generate.request_id = ++id;
    const auto received = proto::parse(
        proto::encode({.header = {.node_id = "broker", .sequence = 1}, .body = generate}));
    CHECK(received.ok(), "no worker would take it: ", received.error().message);
  }
}

void check_request(const CompletionRequest& request, const broker::RequestLimits& limits) {
  if (request.endpoint == Endpoint::kCompletions)
    CHECK(!request.prompts.empty() && request.prompts.size() <= limits.prompts_max, "prompts");
  else
    CHECK(!request.chat.messages_json.empty(), "a chat without messages");
  check_json(request.chat.messages_json);
  check_json(request.chat.tools_json);
  check_json(request.chat.variables_json);
  CHECK(request.choice_count >= 1 && request.choice_count <= limits.choices_max, "n");
  CHECK(request.stop.size() <= limits.stops_max, "stops");
  for (const std::string& stop : request.stop)
    CHECK(!stop.empty() && stop.size() <= limits.stop_bytes_max, "a stop of ", stop.size());
  for (const int32_t id : request.stop_tokens) CHECK(id >= 0, "a negative id");
  const proto::Sampling& sampling = request.sampling;
  for (const float value :
       {sampling.temperature, sampling.top_p, sampling.min_p, sampling.repeat_penalty,
        sampling.presence_penalty, sampling.frequency_penalty})
    CHECK(std::isfinite(value), "sampling with ", value);
  CHECK(request.max_tokens.value_or(0) >= 0, "max_tokens");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const model::Tokenizer tokenizer =
      model_test::make_tokenizer(model_test::byte_pair_vocabulary({.extra = {{"<|end|>", 3}}}));
  fuzz::Bytes bytes(data, size);
  const std::string_view body = bytes.rest();
  const broker::RequestDefaults defaults;
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    CompletionRequest request;
    if (const auto error = broker::parse_request(endpoint, body, defaults, 7, request)) {
      check_error(*error);
      continue;
    }
    CHECK(request.endpoint == endpoint, "another endpoint");
    check_request(request, defaults.limits);
    check_messages(std::move(request), tokenizer);
  }
  return 0;
}
