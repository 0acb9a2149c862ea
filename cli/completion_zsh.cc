#include "base/cat.h"
#include "cli/completion_words.h"

namespace cli {

namespace {

using base::cat;

/// Inside single quotes of the shell, and inside [ ] or between : : of _arguments.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const CompletionWord& word) {
  switch (word.completion) {
    case Completion::kFlag:
    case Completion::kNothing: return " ";
    case Completion::kChoice: return cat("(", word.choices, ")");
    case Completion::kModel: return "_files -g \"*.gguf\"";
    case Completion::kFile: return "_files";
    case Completion::kDirectory: return "_files -/";
  }
  return "";
}

/// One specification of _arguments, as in: '(-p --prompt)'{-p,--prompt=}'[text]:TEXT: '
std::string zsh_specification(const CompletionWord& word) {
  const std::string value = word.value.empty() || word.completion == Completion::kFlag
                                ? ""
                                : cat(":", zsh_text(word.value), ":", zsh_action(word));
  if (word.names.empty()) return cat("'", word.repeats ? "*" : "", value, "'");
  std::vector<std::string> names;
  for (const std::string& name : word.names)
    names.push_back(cat(name, !value.empty() && name.starts_with("--") ? "=" : ""));
  const std::string rest = cat("'[", zsh_text(word.help), "]", value, "'");
  if (names.size() == 1) return cat(names[0], rest);
  return cat("'(", join(word.names, " "), ")'{", join(names, ","), "}", rest);
}

std::string zsh_command(const CommandRow& command) {
  std::string text = cat("        ", command.name, ")\n          _arguments -s -S");
  for (const CompletionWord& word : completion_words(command.command))
    text += cat(" \\\n            ", zsh_specification(word));
  return text + "\n          ;;\n";
}

}  // namespace

std::string zsh_completion() {
  std::string commands, cases;
  for (const CommandRow& command : completed_commands()) {
    commands += cat("        '", command.name, ":", zsh_text(command.help), "'\n");
    cases += zsh_command(command);
  }
  return cat(
      "#compdef numoe\n# zsh completion of numoe; made by: numoe completion zsh\n\n",
      "_numoe() {\n  local curcontext=$curcontext state line\n  typeset -A opt_args\n",
      "  _arguments -C '(-h --help)'{-h,--help}'[print the commands]' '--version[print the "
      "version]' \\\n    '1: :->command' '*:: :->argument'\n",
      "  case $state in\n    command)\n      local -a commands=(\n", commands,
      "      )\n      _describe -t commands command commands\n      ;;\n",
      "    argument)\n      case $line[1] in\n", cases, "      esac\n      ;;\n  esac\n}\n\n",
      // Autoloaded, the file is the body of the function; sourced, it only defines it.
      "if [ \"$funcstack[1]\" = _numoe ]; then _numoe \"$@\"; else compdef _numoe numoe; fi\n");
}

}  // namespace cli
