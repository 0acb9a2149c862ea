// One request's answer while it grows: token chunks in, JSON or server-sent events out.
//
// A request has prompts × choices slots, each one GenerateRequest of the broker. A slot's text is
// what its tokens spell in whole UTF-8 characters, up to the earliest stop string; only a suffix
// that can still become a stop string is held back. Streamed pieces joined are the text of the
// plain answer. A stop string that spells one control token is that token too, as it has no text.
// Each chunk costs what its own text does, however long the answer is. No clock, socket or random
// source. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "broker/api/answer_format.h"
#include "broker/api/api_error.h"
#include "broker/api/request.h"
#include "broker/api/stop_matcher.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "proto/messages.h"

namespace broker {

struct AnswerOptions {
  std::string id = {};                   // "chatcmpl-…" or "cmpl-…"
  int64_t created = 0;                   // seconds since the epoch
  std::string model = {};                // the name that the answer tells
  std::vector<int32_t> end_tokens = {};  // that end a generation unless ignore_eos
};

class Answer {
 public:
  /// What a chunk led to.
  struct Progress {
    std::string events = {};  // to send now, if the request streams; may be empty
    bool cancel = false;      // the slot has its text: cancel its request
  };

  /// `tokenizer` must outlive this. `prompts` as PromptReader gave them.
  Answer(CompletionRequest request, std::vector<std::vector<int32_t>> prompts,
         const model::Tokenizer& tokenizer, AnswerOptions options);

  /// One for each slot, in order: all choices of the first prompt, then of the second, …
  std::vector<proto::GenerateRequest> generate_requests() const;
  size_t slot_count() const;

  /// Streams begin with these events: the role of a chat, the prompt's text for echo.
  std::string opening() const;
  /// The next chunk of a slot. Chunks after a slot's end are ignored.
  Progress on_chunk(size_t slot, const proto::TokenChunk& chunk);
  /// All slots have ended; or one has failed, see error(): then cancel the others.
  bool finished() const;
  /// Of a slot that ended with kError, or was cancelled by somebody else: the whole answer is lost.
  const std::optional<ApiError>& error() const { return error_; }

  /// The plain answer. REQUIRES: finished(), no error.
  std::string json() const;
  /// What ends a stream: the usage if asked for, and [DONE]; one error object and no [DONE] after
  /// an error. REQUIRES: finished().
  std::string closing() const;

 private:
  struct Slot {
    model::StreamingDetokenizer detokenizer;
    StopMatcher stops;
    std::string text;
    int64_t token_count = 0;
    std::string_view finish_reason;  // empty: goes on
  };

  void add_tokens(Slot& slot, const proto::TokenChunk& chunk, std::string& text);
  void fail(const proto::TokenChunk& chunk);
  AnswerUsage usage() const;

  CompletionRequest request_;
  std::vector<std::vector<int32_t>> prompts_;
  AnswerFormat format_;
  std::vector<int32_t> stop_tokens_;
  std::vector<std::string> echoes_;  // of each prompt; empty without echo
  std::vector<Slot> slots_;
  size_t unfinished_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace broker
