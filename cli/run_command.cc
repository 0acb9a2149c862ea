#include <utility>

#include "base/cat.h"
#include "cli/commands.h"
#include "model/detokenizer.h"

namespace cli {

base::Status run(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const ModelText text, open_text(options.model, context.log));
  const model::Tokenizer& tokenizer = text.tokenizer;
  std::vector<int32_t> prompt = tokenizer.encode(
      *options.prompt, {.parse_special = options.special, .add_bos = tokenizer.adds_bos()});
  if (prompt.empty())
    return base::Error{base::Code::kInvalidArgument, "the prompt is empty; give some text with -p"};
  ASSIGN_OR_RETURN(const auto cluster, start_cluster(context));
  const uint64_t seed = choose_seed(options, context.log);
  RETURN_IF_ERROR(print(*options.prompt));
  model::StreamingDetokenizer story(tokenizer, {});
  base::Status printed;
  const auto generated =
      cluster->generate(generate_request(options, tokenizer, std::move(prompt), seed),
                        [&](std::span<const int32_t> tokens) {
                          for (const int32_t token : tokens)
                            if (printed.ok()) printed = print(story.push(token));
                          return printed.ok() ? Continue::kYes : Continue::kNo;
                        });
  RETURN_IF_ERROR(printed);
  // Also before an error, which should not start in the middle of a line.
  RETURN_IF_ERROR(print(base::cat(story.finish(), "\n")));
  if (!generated.ok()) return generated.error();
  if (options.stats) RETURN_IF_ERROR(print_stats(*cluster));
  return {};
}

}  // namespace cli
