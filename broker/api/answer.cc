#include "broker/api/answer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace broker {

namespace {

using Ids = std::vector<int32_t>;

AnswerHead head_of(const CompletionRequest& request, AnswerOptions& options) {
  return {.id = std::move(options.id),
          .created = options.created,
          .model = std::move(options.model),
          .seed = request.sampling.seed,
          .endpoint = request.endpoint,
          .include_usage = request.include_usage};
}

/// Where a generation ends by token: as asked, by the model itself, and at stop strings that spell
/// a control token, which never appear in the text.
Ids stop_tokens_of(const CompletionRequest& request, const model::Tokenizer& tokenizer,
                   const Ids& end_tokens) {
  Ids tokens = request.stop_tokens;
  if (!request.ignore_eos) tokens.insert(tokens.end(), end_tokens.begin(), end_tokens.end());
  for (const std::string& stop : request.stop) {
    const Ids ids = tokenizer.encode(stop, {.parse_special = true});
    if (ids.size() == 1 && tokenizer.is_control(ids[0])) tokens.push_back(ids[0]);
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

std::string echo_of(const PromptInput& prompt, const model::Tokenizer& tokenizer) {
  if (const auto* const text = std::get_if<std::string>(&prompt)) return *text;
  return model::detokenize(tokenizer, std::get<Ids>(prompt), {.whole_text = true});
}

}  // namespace

Answer::Answer(CompletionRequest request, std::vector<Ids> prompts,
               const model::Tokenizer& tokenizer, AnswerOptions options)
    : request_(std::move(request)),
      prompts_(std::move(prompts)),
      format_(head_of(request_, options)),
      stop_tokens_(stop_tokens_of(request_, tokenizer, options.end_tokens)) {
  CHECK(request_.choice_count > 0 && !prompts_.empty(), request_.choice_count, " choices of ",
        prompts_.size(), " prompts");
  if (request_.echo && request_.endpoint == Endpoint::kCompletions) {
    CHECK(request_.prompts.size() == prompts_.size(), "prompts of another request");
    for (const PromptInput& prompt : request_.prompts)
      echoes_.push_back(echo_of(prompt, tokenizer));
  }
  const size_t count = prompts_.size() * static_cast<size_t>(request_.choice_count);
  slots_.reserve(count);
  for (size_t i = 0; i < count; i++)
    slots_.push_back(
        {model::StreamingDetokenizer(tokenizer, {}),
         StopMatcher(request_.stop),
         echoes_.empty() ? "" : echoes_[i / static_cast<size_t>(request_.choice_count)],
         0,
         {}});
  unfinished_ = count;
}

size_t Answer::slot_count() const {
  return slots_.size();
}

// The choice is part of the key of every draw, so choices differ and the first one of many is the
// only one of one.
std::vector<proto::GenerateRequest> Answer::generate_requests() const {
  std::vector<proto::GenerateRequest> requests;
  requests.reserve(slots_.size());
  for (size_t prompt = 0; prompt < prompts_.size(); prompt++)
    for (int choice = 0; choice < request_.choice_count; choice++)
      requests.push_back({.prompt = prompts_[prompt],
                          .sampling = request_.sampling,
                          .max_tokens = request_.max_tokens.value_or(0),
                          .stop_tokens = stop_tokens_,
                          .prompt_index = static_cast<uint32_t>(prompt),
                          .choice_index = static_cast<uint32_t>(choice)});
  return requests;
}

std::string Answer::opening() const {
  std::string events;
  for (size_t i = 0; i < slots_.size(); i++) {
    if (request_.endpoint == Endpoint::kChatCompletions)
      events += format_.role_event(i);
    else if (!echoes_.empty())
      events += format_.text_event(i, echoes_[i / static_cast<size_t>(request_.choice_count)]);
  }
  return events;
}

Answer::Progress Answer::on_chunk(size_t index, const proto::TokenChunk& chunk) {
  CHECK(index < slots_.size(), "slot ", index, " of ", slots_.size());
  Slot& slot = slots_[index];
  if (finished() || !slot.finish_reason.empty()) return {};
  const bool last = chunk.finish != proto::Finish::kNone;
  if (chunk.finish == proto::Finish::kError || chunk.finish == proto::Finish::kCancelled) {
    fail(chunk);
    return {};
  }
  std::string text;
  add_tokens(slot, chunk, text);
  if (last && !slot.stops.matched()) {
    text += slot.stops.push(slot.detokenizer.finish());
    text += slot.stops.finish();
  }
  if (slot.stops.matched() || chunk.finish == proto::Finish::kStop)
    slot.finish_reason = "stop";
  else if (last)
    slot.finish_reason = "length";
  slot.text += text;
  Progress progress;
  progress.cancel = slot.stops.matched() && !last;
  if (request_.stream && !text.empty()) progress.events = format_.text_event(index, text);
  if (slot.finish_reason.empty()) return progress;
  unfinished_--;
  if (request_.stream) progress.events += format_.end_event(index, slot.finish_reason);
  return progress;
}

/// Up to the token that completes a stop: what a chunk holds behind it was never asked for.
void Answer::add_tokens(Slot& slot, const proto::TokenChunk& chunk, std::string& text) {
  for (size_t i = 0; i < chunk.tokens.size() && !slot.stops.matched(); i++) {
    slot.token_count++;
    const bool is_stop = chunk.finish == proto::Finish::kStop && i + 1 == chunk.tokens.size();
    if (!is_stop) text += slot.stops.push(slot.detokenizer.push(chunk.tokens[i]));
  }
}

void Answer::fail(const proto::TokenChunk& chunk) {
  if (chunk.finish == proto::Finish::kError)
    error_ = api_error(chunk.error);
  else
    error_ = api_error({base::Code::kUnavailable,
                        "the answer was cancelled before it ended; send the request again"});
}

bool Answer::finished() const {
  return error_.has_value() || unfinished_ == 0;
}

/// A prompt counts once, whatever the number of its choices.
AnswerUsage Answer::usage() const {
  AnswerUsage usage;
  for (const Ids& prompt : prompts_) usage.prompt_tokens += static_cast<int64_t>(prompt.size());
  for (const Slot& slot : slots_) usage.completion_tokens += slot.token_count;
  return usage;
}

std::string Answer::json() const {
  CHECK(finished() && !error_, "an answer that is not complete");
  std::vector<Choice> choices;
  for (const Slot& slot : slots_) choices.push_back({slot.text, slot.finish_reason});
  return format_.json(choices, usage());
}

std::string Answer::closing() const {
  CHECK(finished(), "an answer that is not complete");
  if (error_) return "data: " + error_json(*error_) + "\n\n";
  return (request_.include_usage ? format_.usage_event(usage()) : "") + "data: [DONE]\n\n";
}

}  // namespace broker
