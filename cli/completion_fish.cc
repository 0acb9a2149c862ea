#include "base/cat.h"
#include "cli/completion_words.h"

namespace cli {

namespace {

using base::cat;

constexpr const char* kBegin = R"(# fish completion of numoe; made by: numoe completion fish

# __numoe_at COMMAND [POSITION]: whether that subcommand is being written, and which of its
# arguments that are no options.
function __numoe_at
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = $argv[1]; or return 1
    set -q argv[2]; or return 0
    set -l position 0
    set -l skip 0
    for word in $words[3..]
        if test $skip = 1
            set skip 0
            continue
        end
        switch $word
            case )";
constexpr const char* kMiddle = R"(
                set skip 1
            case '-*'
            case '*'
                set position (math $position + 1)
        end
    end
    test $position = $argv[2]
end

complete -c numoe -f
complete -c numoe -n __fish_use_subcommand -s h -l help -d 'print the commands'
complete -c numoe -n __fish_use_subcommand -l version -d 'print the version'
)";

/// In single quotes.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out += '\'';
}

std::string fish_action(const CompletionWord& word) {
  switch (word.completion) {
    case Completion::kFlag: return "";
    case Completion::kNothing: return " -x";
    case Completion::kChoice: return cat(" -x -a ", quoted(word.choices));
    case Completion::kModel: return " -x -a '(__fish_complete_suffix .gguf)'";
    case Completion::kFile: return " -r -F";
    case Completion::kDirectory: return " -x -a '(__fish_complete_directories)'";
  }
  return "";
}

std::string fish_option(const CommandRow& command, const CompletionWord& word) {
  std::string line = cat("complete -c numoe -n '__numoe_at ", command.name, "'");
  for (const std::string& name : word.names)
    line += name.starts_with("--") ? cat(" -l ", name.substr(2)) : cat(" -s ", name.substr(1));
  return cat(line, fish_action(word), " -d ", quoted(word.help), "\n");
}

/// A positional argument has no -r or -x, which speak of an option's value.
std::string fish_argument(const CommandRow& command, const CompletionWord& word, int position) {
  const std::string begin =
      cat("complete -c numoe -n '__numoe_at ", command.name, " ", position, "'");
  switch (word.completion) {
    case Completion::kChoice: return cat(begin, " -a ", quoted(word.choices), "\n");
    case Completion::kModel: return cat(begin, " -a '(__fish_complete_suffix .gguf)'\n");
    case Completion::kFile: return cat(begin, " -F\n");
    case Completion::kDirectory: return cat(begin, " -a '(__fish_complete_directories)'\n");
    case Completion::kFlag:
    case Completion::kNothing: break;
  }
  return "";
}

}  // namespace

std::string fish_completion() {
  std::string text = cat(kBegin, names_with_value(" "), kMiddle);
  for (const CommandRow& command : completed_commands())
    text += cat("complete -c numoe -n __fish_use_subcommand -a ", command.name, " -d ",
                quoted(command.help), "\n");
  for (const CommandRow& command : completed_commands()) {
    int position = 0;
    for (const CompletionWord& word : completion_words(command.command))
      text += word.names.empty() ? fish_argument(command, word, position++)
                                 : fish_option(command, word);
  }
  return text;
}

}  // namespace cli
