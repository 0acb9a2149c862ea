#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/cat.h"
#include "cli/commands.h"

namespace cli {

namespace {

base::Result<std::string> read_stdin(SignalWatch& signals) {
  std::string text;
  char bytes[1 << 16];
  while (true) {
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (signals.asked_to_end()) return signals.error();
    if (count == 0) return text;
    if (count < 0 && errno != EINTR)
      return base::Error{base::Code::kSystem,
                         base::cat("reading standard input: ", std::strerror(errno))};
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
  }
}

}  // namespace

base::Status tokenize(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const ModelText model, open_text(options.model, context.log));
  std::string text;
  if (options.prompt) {
    text = *options.prompt;
  } else {
    ASSIGN_OR_RETURN(text, read_stdin(context.signals));
  }
  const std::vector<int32_t> ids =
      model.tokenizer.encode(text, {.parse_special = options.special, .add_bos = options.bos});
  std::string line;
  for (size_t i = 0; i < ids.size(); i++) line += base::cat(i == 0 ? "" : " ", ids[i]);
  return print(base::cat(line, "\n"));
}

base::Status detokenize(Context& context) {
  ASSIGN_OR_RETURN(const ModelText model, open_text(context.options.model, context.log));
  for (const int32_t id : context.options.ids)
    if (!model.tokenizer.is_valid(id))
      return base::Error{base::Code::kInvalidArgument,
                         base::cat("id ", id, " is not in this vocabulary; its ids are 0 … ",
                                   model.tokenizer.size() - 1)};
  return print(base::cat(model.tokenizer.decode(context.options.ids), "\n"));
}

}  // namespace cli
