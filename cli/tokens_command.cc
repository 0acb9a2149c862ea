#include "base/cat.h"
#include "cli/commands.h"
#include "cli/input.h"

namespace cli {

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
