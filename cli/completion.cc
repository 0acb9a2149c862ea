#include "cli/completion.h"

#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "cli/completion_words.h"

namespace cli {

namespace {

Completion completion_of(const OptionRow& row) {
  const std::string_view value = row.value;
  if (std::holds_alternative<bool Options::*>(row.target)) return Completion::kFlag;
  if (!row.choices.empty()) return Completion::kChoice;
  if (value == "MODEL") return Completion::kModel;
  if (value == "FILE") return Completion::kFile;
  if (value == "DIR") return Completion::kDirectory;
  return Completion::kNothing;
}

CompletionWord word_of(const OptionRow& row) {
  CompletionWord word{
      .value = row.value,
      .help = row.help,
      .choices = row.choices,
      .completion = completion_of(row),
      .repeats = std::holds_alternative<std::vector<int32_t> Options::*>(row.target) ||
                 std::holds_alternative<std::vector<std::string> Options::*>(row.target)};
  for (std::string_view names = row.names; !names.empty();) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    if (name.starts_with('-')) word.names.emplace_back(name);
  }
  return word;
}

}  // namespace

std::vector<CommandRow> completed_commands() {
  std::vector<CommandRow> commands;
  for (const CommandRow& row : command_rows())
    if (row.command != Command::kWorker) commands.push_back(row);
  return commands;
}

std::vector<CompletionWord> completion_words(Command command) {
  std::vector<CompletionWord> words = {{.names = {"-h", "--help"},
                                        .help = "print the options of this command",
                                        .completion = Completion::kFlag}};
  for (const OptionRow& row : option_rows())
    if ((row.commands & bit(command)) != 0) words.push_back(word_of(row));
  std::stable_partition(words.begin(), words.end(),
                        [](const CompletionWord& word) { return !word.names.empty(); });
  return words;
}

std::string names_with_value(std::string_view separator) {
  std::vector<std::string> names;
  for (const CommandRow& command : completed_commands())
    for (const CompletionWord& word : completion_words(command.command))
      if (word.completion != Completion::kFlag)
        names.insert(names.end(), word.names.begin(), word.names.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return join(names, separator);
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  CHECK(shell == "fish", "no completion for the shell ", shell);
  return fish_completion();
}

}  // namespace cli
