// A conversation on the terminal: one line is one turn.
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "cli/commands.h"
#include "model/chat_template.h"
#include "model/detokenizer.h"

namespace cli {

namespace {

/// Lines of standard input, read while the cluster goes on.
class Lines {
 public:
  explicit Lines(LocalCluster& cluster) : cluster_(cluster) {}

  /// Nothing at the end of the input. Errors: those of the cluster.
  base::Result<std::optional<std::string>> next() {
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return std::optional(std::move(line));
      }
      if (ended_) {
        if (buffer_.empty()) return std::optional<std::string>();
        return std::optional(std::exchange(buffer_, {}));
      }
      RETURN_IF_ERROR(cluster_.wait_for(STDIN_FILENO));
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) ended_ = true;
      if (count > 0) buffer_.append(bytes, static_cast<size_t>(count));
    }
  }

 private:
  LocalCluster& cluster_;
  std::string buffer_;
  bool ended_ = false;
};

/// The answer to `prompt`, printed while it comes.
base::Result<std::string> answer(LocalCluster& cluster, const model::Tokenizer& tokenizer,
                                 proto::GenerateRequest request) {
  model::StreamingDetokenizer stream(tokenizer, {});
  std::string text;
  base::Status printed;
  const auto show = [&](const std::string& part) {
    text += part;
    if (printed.ok()) printed = print(part);
  };
  const auto generated = cluster.generate(std::move(request), [&](std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) show(stream.push(token));
    return printed.ok() ? Continue::kYes : Continue::kNo;
  });
  show(stream.finish());
  if (printed.ok()) printed = print("\n");
  RETURN_IF_ERROR(printed);
  if (!generated.ok()) return generated.error();
  return text;
}

/// Whether the conversation can go on after this error.
bool concerns_one_turn(const base::Error& error) {
  return error.code == base::Code::kInvalidArgument || error.code == base::Code::kNoSpace;
}

}  // namespace

base::Status chat(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const ModelText text, open_text(options.model, context.log));
  auto chat_template = model::ChatTemplate::create(text.metadata, text.tokenizer, {});
  if (!chat_template.ok())
    return base::Error{chat_template.error().code, base::cat(chat_template.error().message,
                                                             "; give a text to continue with -p")};
  ASSIGN_OR_RETURN(const auto cluster, start_cluster(context));
  const uint64_t seed = choose_seed(options, context.log);
  const bool person = isatty(STDIN_FILENO) != 0;
  if (person) RETURN_IF_ERROR(print("One line is one turn; Ctrl-D ends.\n"));

  model::ChatRequest conversation;
  if (!options.system.empty()) conversation.messages.push_back({"system", options.system});
  Lines lines(*cluster);
  for (uint32_t turn = 0;; turn++) {
    if (person) RETURN_IF_ERROR(print("> "));
    ASSIGN_OR_RETURN(std::optional<std::string> line, lines.next());
    if (!line) break;
    if (line->empty()) continue;
    conversation.messages.push_back({"user", std::move(*line)});
    ASSIGN_OR_RETURN(model::RenderedChat rendered, chat_template->render(conversation));
    proto::GenerateRequest request =
        generate_request(options, text.tokenizer, std::move(rendered.ids), seed);
    request.prompt_index = turn;
    auto answered = answer(*cluster, text.tokenizer, std::move(request));
    if (answered.ok()) {
      conversation.messages.push_back({"assistant", std::move(*answered)});
      continue;
    }
    if (!concerns_one_turn(answered.error())) return answered.error();
    context.log.error(answered.error().message);
    conversation.messages.pop_back();
  }
  if (person) RETURN_IF_ERROR(print("\n"));
  if (options.stats) RETURN_IF_ERROR(print_stats(*cluster));
  return {};
}

}  // namespace cli
