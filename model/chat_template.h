// A conversation to the prompt that the model was trained on, by the template in the model file.
//
// The template is untrusted code in Jinja2, so it runs in a helper process (model/
// chat_template_helper.py, embedded in this program): an immutable sandbox, little memory and CPU
// time, no files. The process is started when needed, and again if it dies.
//
// What messages say can never become a control token: their literals are broken in all data before
// rendering and made whole after control tokens were found, so control tokens in the prompt are
// exactly those that the template wrote. Roles come from the structure of a request.
//
// Thread rule: one thread at a time. render() blocks, at most for the time limit twice.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/helper_process.h"
#include "model/metadata.h"
#include "model/tokenizer.h"

namespace model {

struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatRequest {
  std::vector<ChatMessage> messages = {};
  /// Instead of `messages`, if not empty: a JSON array of messages as in the OpenAI API.
  std::string messages_json = {};
  /// A JSON array of tools; empty if there are none.
  std::string tools_json = {};
  /// A JSON object of further variables for the template; empty if there are none.
  std::string variables_json = {};
  /// Ends the prompt where the assistant's answer begins.
  bool add_generation_prompt = true;
};

struct RenderedChat {
  std::string text;
  std::vector<int32_t> ids;  // with one BOS if the template prints one or adds_bos() says so
};

struct ChatTemplateOptions {
  std::string python = "/usr/bin/python3";
  std::chrono::milliseconds time_limit{10'000};  // of one rendering
  int cpu_seconds = 5;                           // of one rendering
  int64_t memory_bytes = int64_t{512} << 20;
  std::optional<std::string> now = {};  // ISO time that strftime_now() tells; else the clock's
};

class ChatTemplate {
 public:
  /// Takes the template and the special tokens from the metadata, starts the helper and compiles.
  /// `tokenizer` must outlive this. Errors: kNotFound if the file has no template, kBrokenFile if
  /// it does not compile, kUnavailable if there is no Python with Jinja2.
  static base::Result<ChatTemplate> create(const Metadata& metadata, const Tokenizer& tokenizer,
                                           ChatTemplateOptions options);

  /// Errors: kInvalidArgument with the template's own sentence, or for broken JSON; kTimeout if it
  /// takes too long; kUnavailable if the helper cannot be started again.
  base::Result<RenderedChat> render(const ChatRequest& request);

  /// The helper's process id, -1 if none runs.
  int helper_pid() const { return helper_ ? static_cast<int>(helper_->pid()) : -1; }

 private:
  ChatTemplate(const Tokenizer& tokenizer, ChatTemplateOptions options)
      : tokenizer_(&tokenizer), options_(std::move(options)) {}
  base::Status start();
  base::Result<std::string> ask(const std::string& frame);

  const Tokenizer* tokenizer_;
  ChatTemplateOptions options_;
  std::string configuration_;  // the helper's first frame
  std::optional<HelperProcess> helper_;
};

}  // namespace model
