#include "broker/api/answer_format.h"

#include <utility>

#include "base/cat.h"
#include "broker/api/json_writer.h"

namespace broker {

namespace {

bool is_chat(const AnswerHead& head) {
  return head.endpoint == Endpoint::kChatCompletions;
}

/// The fields that every object of an answer begins with; the object stays open.
void begin(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.begin_object().field("id", head.id).field("object", object);
  json.field("created", head.created).field("model", head.model);
}

void write_usage(JsonWriter& json, const AnswerUsage& usage) {
  json.key("usage").begin_object();
  json.field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens).end_object();
}

/// {"delta":{…}} of chats, or "text":"…": how events carry text.
std::string content(const AnswerHead& head, std::string_view text) {
  const std::string quoted = model::json_string(text);
  if (!is_chat(head)) return base::cat("\"text\":", quoted);
  return text.empty() ? "\"delta\":{}" : base::cat("\"delta\":{\"content\":", quoted, '}');
}

}  // namespace

AnswerFormat::AnswerFormat(AnswerHead head) : head_(std::move(head)) {
  JsonWriter json;
  begin(json, head_, is_chat(head_) ? "chat.completion.chunk" : "text_completion");
  event_begin_ = base::cat("data: ", json.take(), ",\"choices\":[");
  event_end_ = head_.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n";
}

std::string AnswerFormat::event(size_t index, std::string_view content,
                                std::string_view finish_reason) const {
  if (finish_reason.empty())
    return base::cat(event_begin_, "{\"index\":", index, ',', content,
                     ",\"logprobs\":null,\"finish_reason\":null}", event_end_);
  // With the seed, a request that named none can be repeated.
  return base::cat(event_begin_, "{\"index\":", index, ',', content,
                   ",\"logprobs\":null,\"finish_reason\":\"", finish_reason,
                   "\"}],\"seed\":", head_.seed, std::string_view(event_end_).substr(1));
}

std::string AnswerFormat::role_event(size_t index) const {
  return event(index, R"("delta":{"role":"assistant","content":""})", "");
}

std::string AnswerFormat::text_event(size_t index, std::string_view text) const {
  return event(index, content(head_, text), "");
}

std::string AnswerFormat::end_event(size_t index, std::string_view finish_reason) const {
  return event(index, content(head_, ""), finish_reason);
}

std::string AnswerFormat::usage_event(const AnswerUsage& usage) const {
  JsonWriter json;
  json.begin_object();
  write_usage(json, usage);
  return base::cat(event_begin_, "],", std::string_view(json.take()).substr(1), "}\n\n");
}

std::string AnswerFormat::json(const std::vector<Choice>& choices, const AnswerUsage& usage) const {
  JsonWriter json;
  begin(json, head_, is_chat(head_) ? "chat.completion" : "text_completion");
  json.key("choices").begin_array();
  for (size_t i = 0; i < choices.size(); i++) {
    json.begin_object().field("index", i);
    if (is_chat(head_)) {
      json.key("message").begin_object().field("role", "assistant");
      json.field("content", choices[i].text).end_object();
    } else {
      json.field("text", choices[i].text);
    }
    json.key("logprobs").null().field("finish_reason", choices[i].finish_reason).end_object();
  }
  json.end_array();
  write_usage(json, usage);
  return json.field("seed", head_.seed).end_object().take();
}

}  // namespace broker
