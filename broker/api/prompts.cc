#include "broker/api/prompts.h"

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "broker/api/fields.h"

namespace broker {

namespace {

using Ids = std::vector<int32_t>;

std::optional<ApiError> refusal(std::string path, std::string sentence) {
  return ApiError{.message = std::move(sentence), .param = std::move(path)};
}

/// Biases and stop tokens can only name what can be produced: the tokens that have a text.
std::optional<ApiError> check_named_tokens(const CompletionRequest& request, int64_t token_count) {
  const auto sentence = [&](std::string_view field, int32_t id) {
    return base::cat(field, " names token ", id, "; this model has tokens 0 … ", token_count - 1);
  };
  for (const auto& [id, bias] : request.sampling.logit_bias)
    if (id >= token_count) return refusal("logit_bias", sentence("logit_bias", id));
  for (size_t i = 0; i < request.stop_tokens.size(); i++) {
    const std::string path = at("stop_token_ids", i);
    if (request.stop_tokens[i] >= token_count)
      return refusal(path, sentence(path, request.stop_tokens[i]));
  }
  return std::nullopt;
}

std::optional<ApiError> check_prompt(const Ids& ids, const std::string& path,
                                     const PromptLimits& limits) {
  if (ids.empty())
    return refusal(path,
                   base::cat(path, " has no tokens; an answer needs something to go on from"));
  const auto wrong = std::find_if(ids.begin(), ids.end(),
                                  [&](int32_t id) { return id < 0 || id >= limits.vocabulary; });
  if (wrong != ids.end()) {
    const std::string place = at(path, static_cast<size_t>(wrong - ids.begin()));
    return refusal(place, base::cat(place, " is token ", *wrong, "; this model has ids 0 … ",
                                    limits.vocabulary - 1));
  }
  const auto count = static_cast<int64_t>(ids.size());
  if (count < limits.context) return std::nullopt;
  // Agents recognise the code, or "maximum context length" and "exceeds", and shorten the prompt.
  return ApiError{.message = base::cat(path, " has ", count, " tokens, which exceeds the context: ",
                                       "this model's maximum context length is ", limits.context,
                                       " tokens, one of them for the answer; shorten it or start ",
                                       "the server with a larger --ctx"),
                  .param = path,
                  .code = "context_length_exceeded"};
}

}  // namespace

std::optional<ApiError> PromptReader::read(const CompletionRequest& request,
                                           const PromptLimits& limits, std::vector<Ids>& prompts) {
  prompts.clear();
  const int64_t token_count = std::min(tokenizer_.size(), limits.vocabulary);
  if (auto error = check_named_tokens(request, token_count)) return error;
  if (request.endpoint == Endpoint::kChatCompletions) {
    Ids ids;
    if (auto error = render(request, ids)) return error;
    if (auto error = check_prompt(ids, "messages", limits)) return error;
    prompts.push_back(std::move(ids));
    return std::nullopt;
  }
  const model::EncodeOptions options{.parse_special = request.parse_special,
                                     .add_bos = request.add_special && tokenizer_.adds_bos()};
  for (size_t i = 0; i < request.prompts.size(); i++) {
    const std::string path = request.prompt_list ? at("prompt", i) : "prompt";
    const auto* const text = std::get_if<std::string>(&request.prompts[i]);
    Ids ids =
        text != nullptr ? tokenizer_.encode(*text, options) : std::get<Ids>(request.prompts[i]);
    if (auto error = check_prompt(ids, path, limits)) return error;
    prompts.push_back(std::move(ids));
  }
  return std::nullopt;
}

std::optional<ApiError> PromptReader::render(const CompletionRequest& request, Ids& ids) {
  if (chat_ == nullptr)
    return refusal("messages",
                   "this model has no chat template; send a prompt to /v1/completions instead");
  auto rendered = chat_->render(request.chat);
  if (!rendered.ok() && rendered.error().code == base::Code::kInvalidArgument &&
      !request.messages_with_text_arguments.empty()) {
    model::ChatRequest chat = request.chat;
    chat.messages_json = request.messages_with_text_arguments;
    auto second = chat_->render(chat);
    if (second.ok()) rendered = std::move(second);
  }
  if (rendered.ok()) {
    ids = std::move(rendered->ids);
    return std::nullopt;
  }
  ApiError error = api_error(rendered.error());
  // What the template refuses, or does not finish, it will refuse again: clients must not repeat
  // it, as they do after 5xx.
  const base::Code code = rendered.error().code;
  if (code == base::Code::kInvalidArgument || code == base::Code::kTimeout)
    error = {.message = std::move(error.message), .param = "messages"};
  return error;
}

}  // namespace broker
