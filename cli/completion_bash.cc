#include "base/cat.h"
#include "cli/completion_words.h"

namespace cli {

namespace {

using base::cat;

// With readline's word breaks `--isa=sc` comes as three words, "--isa", "=" and "sc".
constexpr const char* kBegin = R"(# bash completion of numoe; made by: numoe completion bash

_numoe_files() {
  mapfile -t COMPREPLY < <(compgen "$@")
  compopt -o filenames 2>/dev/null
}

# Models: GGUF files and folders; any file where there is none of them.
_numoe_model() {
  local current=$1
  mapfile -t COMPREPLY < <(compgen -f -X '!*.gguf' -- "$current"; compgen -d -- "$current")
  if [ ${#COMPREPLY[@]} -eq 0 ]; then mapfile -t COMPREPLY < <(compgen -f -- "$current"); fi
  compopt -o filenames 2>/dev/null
}

_numoe() {
  local current=${COMP_WORDS[COMP_CWORD]} previous= command= options= position=0 i
  COMPREPLY=()
  if [ "$COMP_CWORD" -gt 0 ]; then previous=${COMP_WORDS[COMP_CWORD - 1]}; fi
  if [ "$current" = "=" ]; then
    current=
  elif [ "$previous" = "=" ] && [ "$COMP_CWORD" -gt 1 ]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [ "$COMP_CWORD" -gt 1 ]; then command=${COMP_WORDS[1]}; fi
  case $command in
)";

std::string bash_action(const CompletionWord& word) {
  switch (word.completion) {
    case Completion::kFlag:
    case Completion::kNothing: return "";
    case Completion::kChoice:
      return cat("mapfile -t COMPREPLY < <(compgen -W '", word.choices, "' -- \"$current\")");
    case Completion::kModel: return "_numoe_model \"$current\"";
    case Completion::kFile: return "_numoe_files -f -- \"$current\"";
    case Completion::kDirectory: return "_numoe_files -d -- \"$current\"";
  }
  return "";
}

std::string bash_case(const std::string& pattern, const std::string& action) {
  return cat("    ", pattern, ")\n", action.empty() ? "" : cat("      ", action, "\n"),
             "      return\n      ;;\n");
}

/// Values of options: "command:--option".
std::string bash_values() {
  std::string cases;
  for (const CommandRow& command : completed_commands())
    for (const CompletionWord& word : completion_words(command.command)) {
      if (word.names.empty() || word.completion == Completion::kFlag) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : word.names) patterns.push_back(cat(command.name, ":", name));
      cases += bash_case(join(patterns, " | "), bash_action(word));
    }
  return cases;
}

/// Positional arguments: "command:0".
std::string bash_positions() {
  std::string cases;
  for (const CommandRow& command : completed_commands()) {
    int position = 0;
    for (const CompletionWord& word : completion_words(command.command))
      if (word.names.empty())
        cases += bash_case(cat(command.name, ":", position++), bash_action(word));
  }
  return cases;
}

std::string bash_options() {
  std::string cases;
  for (const CommandRow& command : completed_commands()) {
    std::vector<std::string> names;
    for (const CompletionWord& word : completion_words(command.command))
      names.insert(names.end(), word.names.begin(), word.names.end());
    cases += cat("    ", command.name, ") options='", join(names, " "), "' ;;\n");
  }
  return cases;
}

}  // namespace

std::string bash_completion() {
  std::vector<std::string> commands;
  for (const CommandRow& command : completed_commands()) commands.emplace_back(command.name);
  return cat(kBegin, bash_options(), "    '')\n", "      mapfile -t COMPREPLY < <(compgen -W '",
             join(commands, " "),
             " -h --help --version' -- \"$current\")\n      return\n      ;;\n",
             "    *) return ;;\n  esac\n", "  case $command:$previous in\n", bash_values(),
             "  esac\n", "  case $current in\n    -*)\n",
             "      mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")\n",
             "      return\n      ;;\n  esac\n",
             "  for ((i = 2; i < COMP_CWORD; i++)); do\n    case ${COMP_WORDS[i]} in\n      ",
             names_with_value(" | "), ")\n",
             "        if [ \"${COMP_WORDS[i + 1]}\" = \"=\" ]; then i=$((i + 1)); fi\n",
             "        i=$((i + 1))\n        ;;\n      -*) ;;\n",
             "      *) position=$((position + 1)) ;;\n    esac\n  done\n",
             "  case $command:$position in\n", bash_positions(), "  esac\n}\n\n",
             "complete -F _numoe numoe\n");
}

}  // namespace cli
