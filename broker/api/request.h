// The bodies of POST /v1/completions and /v1/chat/completions, checked and as plain data.
//
// parse_request() trusts nothing: any bytes give a request or an error with status 400 that names
// the field. A field that is null is the same as absent. Fields that would change the answer and
// are not supported are refused; fields that cannot change it (user, metadata, store, …) are
// ignored. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "broker/api/api_error.h"
#include "model/chat_template.h"
#include "proto/messages.h"

namespace broker {

enum class Endpoint { kCompletions, kChatCompletions };

/// Text, or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string model = {};                 // as asked for; empty if it was absent
  std::vector<PromptInput> prompts = {};  // of kCompletions, at least one
  bool prompt_list = false;               // "prompt" was a list of prompts, not one
  model::ChatRequest chat = {};           // of kChatCompletions, as JSON texts, normalised
  /// chat.messages_json has the arguments of calls as objects; here they are as they were sent, for
  /// templates that want text. Empty if there are none.
  std::string messages_with_text_arguments = {};
  proto::Sampling sampling = {};           // complete: defaults filled in
  std::optional<int64_t> max_tokens = {};  // absent: up to the context
  int choice_count = 1;                    // n
  std::vector<std::string> stop = {};      // none is empty
  std::vector<int32_t> stop_tokens = {};   // stop_token_ids
  bool ignore_eos = false;
  bool parse_special = true;  // of kCompletions: text that spells a control token becomes it
  bool add_special = true;    // of kCompletions: text begins with BOS where the model wants one
  bool echo = false;          // of kCompletions: the prompt's text in front of each choice
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
};

struct RequestLimits {
  size_t prompts_max = 64;
  int choices_max = 16;
  int answers_max = 128;  // prompts × choices
  size_t stops_max = 16;
  size_t stop_bytes_max = 1024;
  int depth_max = 32;  // of the JSON
};

struct RequestDefaults {
  proto::Sampling sampling = {};  // where the body is silent
  RequestLimits limits = {};
};

/// Where the body names no seed, the lower 53 bits of `random_seed` are it: every JSON reader can
/// repeat them. Nothing: `request` is filled in.
std::optional<ApiError> parse_request(Endpoint endpoint, std::string_view body,
                                      const RequestDefaults& defaults, uint64_t random_seed,
                                      CompletionRequest& request);

/// Whether this server has the model that was asked for: none, or one of `served_names` (at least
/// one). Otherwise 404 model_not_found with the names that there are.
std::optional<ApiError> check_model(const CompletionRequest& request,
                                    std::span<const std::string> served_names);

}  // namespace broker
