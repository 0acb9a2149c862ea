// Text and conversations to the token ids that are computed: fixed here, once.
//
// Blocks while the template is rendered, so it runs in a thread of its own. Thread rule: one thread
// at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "broker/api/request.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"

namespace broker {

struct PromptLimits {
  int64_t context = 0;     // positions of one sequence
  int64_t vocabulary = 0;  // ids below it have a row
};

class PromptReader {
 public:
  /// Both must outlive this; `chat` may be nullptr: the model has no template, which is a 400 for
  /// chats that says so.
  PromptReader(const model::Tokenizer& tokenizer, model::ChatTemplate* chat)
      : tokenizer_(tokenizer), chat_(chat) {}

  /// Ids of each prompt; one for a chat. Errors: empty; an id outside the vocabulary, also in
  /// logit_bias and stop_token_ids; the template's own refusal; longer than the context less one:
  /// code context_length_exceeded with both numbers. All are 400, but 503 if templates cannot be
  /// rendered at all.
  std::optional<ApiError> read(const CompletionRequest& request, const PromptLimits& limits,
                               std::vector<std::vector<int32_t>>& prompts);

 private:
  std::optional<ApiError> render(const CompletionRequest& request, std::vector<int32_t>& ids);

  const model::Tokenizer& tokenizer_;
  model::ChatTemplate* const chat_;
};

}  // namespace broker
