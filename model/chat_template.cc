#include "model/chat_template.h"

#include <signal.h>

#include <charconv>

#include "base/cat.h"
#include "model/chat_template_helper.h"  // tidy: allow include_path because CMake makes it
#include "model/detokenizer.h"
#include "model/utf8.h"

namespace model {

namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string valid_utf8(std::string_view text) {
  Utf8Repair repair;
  std::string out = repair.push(text);
  return out += repair.finish();
}

/// A JSON string, quotes included.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : valid_utf8(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += base::cat("\\u00", kDigits[c >> 4], kDigits[c & 15]);
    } else {
      out += c;
    }
  }
  return out += '"';
}

/// JSON text as a JSON string, or null if there is none.
std::string quoted_or_null(std::string_view json) {
  return json.empty() ? std::string("null") : json_string(json);
}

std::string messages_as_json(const std::vector<ChatMessage>& messages) {
  std::string out = "[";
  for (const ChatMessage& message : messages) {
    if (out.size() > 1) out += ',';
    out += base::cat("{\"role\":", json_string(message.role),
                     ",\"content\":", json_string(message.content), "}");
  }
  return out += ']';
}

std::string special_tokens_as_json(const Metadata& metadata, const Tokenizer& tokenizer) {
  constexpr struct {
    std::string_view variable, key;
  } kTokens[] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                 {"eos_token", "tokenizer.ggml.eos_token_id"},
                 {"unk_token", "tokenizer.ggml.unknown_token_id"},
                 {"pad_token", "tokenizer.ggml.padding_token_id"}};
  std::string out = "{";
  for (const auto& token : kTokens) {
    const auto id = metadata.integer(token.key, 0, tokenizer.size() - 1);
    if (!id.ok()) continue;  // templates ask whether it is defined
    if (out.size() > 1) out += ',';
    out += base::cat(json_string(token.variable), ':',
                     json_string(tokenizer.piece(static_cast<int32_t>(*id))));
  }
  return out += '}';
}

std::string control_literals_as_json(const Tokenizer& tokenizer) {
  std::string out = "[";
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_text(id)) continue;
    if (out.size() > 1) out += ',';
    out += json_string(tokenizer.piece(id));
  }
  return out += ']';
}

/// Splits "head\nbody".
std::pair<std::string_view, std::string_view> head_and_body(std::string_view frame) {
  const size_t newline = frame.find('\n');
  if (newline == std::string_view::npos) return {frame, {}};
  return {frame.substr(0, newline), frame.substr(newline + 1)};
}

}  // namespace

base::Result<ChatTemplate> ChatTemplate::create(const Metadata& metadata,
                                                const Tokenizer& tokenizer,
                                                ChatTemplateOptions options) {
  if (metadata.find(kTemplateKey) == nullptr) {
    return base::Error{base::Code::kNotFound,
                       base::cat("the model file has no chat template (", kTemplateKey,
                                 "); use plain completion with it")};
  }
  ASSIGN_OR_RETURN(const std::string source, metadata.string(kTemplateKey));
  ChatTemplate chat(tokenizer, std::move(options));
  const ChatTemplateOptions& chosen = chat.options_;
  chat.configuration_ = base::cat(
      "{\"template\":", json_string(source),
      ",\"special_tokens\":", special_tokens_as_json(metadata, tokenizer),
      ",\"control_literals\":", control_literals_as_json(tokenizer),
      ",\"now\":", quoted_or_null(chosen.now.value_or("")),
      ",\"memory_bytes\":", chosen.memory_bytes, ",\"cpu_seconds\":", chosen.cpu_seconds, "}");
  RETURN_IF_ERROR(chat.start());
  return chat;
}

base::Status ChatTemplate::start() {
  helper_.reset();
  const std::vector<std::string> command = {options_.python, "-I", "-B", "-c",
                                            std::string(kChatTemplateHelper)};
  auto helper = HelperProcess::start(command);
  if (!helper.ok()) {
    return base::Error{base::Code::kUnavailable,
                       base::cat("chat templates need Python 3: ", helper.error().message)};
  }
  helper_ = std::move(*helper);
  // Starting an interpreter on a busy machine takes longer than rendering.
  const auto answer = helper_->ask(configuration_, options_.time_limit + std::chrono::seconds(20));
  if (!answer.ok()) {
    helper_.reset();
    return base::Error{
        base::Code::kUnavailable,
        base::cat("the chat template's process does not start: ", answer.error().message)};
  }
  const auto [head, body] = head_and_body(*answer);
  if (head == "ok") return {};
  helper_.reset();
  if (body.starts_with("ModuleNotFoundError")) {
    return base::Error{base::Code::kUnavailable,
                       base::cat("chat templates need the package python3-jinja2 for ",
                                 options_.python, ": ", body)};
  }
  return base::Error{base::Code::kBrokenFile, base::cat(kTemplateKey, ": ", body)};
}

base::Result<std::string> ChatTemplate::ask(const std::string& frame) {
  // A process that died while idle is replaced; a request that kills it twice is at fault.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!helper_) RETURN_IF_ERROR(start());
    auto answer = helper_->ask(frame, options_.time_limit);
    if (answer.ok()) return answer;
    const int signal = helper_->stop();
    helper_.reset();
    if (answer.error().code == base::Code::kTimeout || signal == SIGXCPU) {
      return base::Error{base::Code::kTimeout,
                         base::cat("the chat template did not finish within ",
                                   options_.time_limit.count(), " ms and ", options_.cpu_seconds,
                                   " s of processor time; shorten the conversation")};
    }
  }
  return base::Error{base::Code::kInvalidArgument,
                     "the chat template ends its process on these messages"};
}

base::Result<RenderedChat> ChatTemplate::render(const ChatRequest& request) {
  const std::string messages =
      request.messages_json.empty() ? messages_as_json(request.messages) : request.messages_json;
  const std::string frame = base::cat(
      "{\"messages\":", json_string(messages), ",\"tools\":", quoted_or_null(request.tools_json),
      ",\"variables\":", quoted_or_null(request.variables_json),
      ",\"add_generation_prompt\":", request.add_generation_prompt, "}");
  ASSIGN_OR_RETURN(const std::string answer, ask(frame));
  const auto [head, body] = head_and_body(answer);
  if (!head.starts_with("ok ")) {
    return base::Error{base::Code::kInvalidArgument, std::string(body)};
  }
  uint32_t code = 0;
  std::from_chars(head.data() + 3, head.data() + head.size(), code, 16);
  std::string sentinel;
  append_utf8(code, sentinel);
  RenderedChat chat;
  chat.ids = tokenizer_->encode(
      body, {.parse_special = true, .add_bos = tokenizer_->adds_bos(), .sentinel = sentinel});
  chat.text = remove_sentinel(body, sentinel);
  return chat;
}

}  // namespace model
