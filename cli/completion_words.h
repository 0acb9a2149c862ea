// The option table as the completion scripts need it. Private to the folder. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/option_table.h"

namespace cli {

/// What a value may be completed to.
enum class Completion { kFlag, kNothing, kChoice, kModel, kFile, kDirectory };

/// An option or a positional argument of one subcommand.
struct CompletionWord {
  std::vector<std::string> names = {};  // "-p", "--prompt"; empty: positional
  std::string value = {};               // "N"; empty for flags
  std::string help = {};
  std::string choices = {};  // of kChoice, separated by blanks
  Completion completion = Completion::kNothing;
  bool repeats = false;  // of positional ones: as often as one likes
};

/// The subcommands that people call, in the order of the help.
std::vector<CommandRow> completed_commands();

/// Options first, then positional arguments in their order. With --help, which each has.
std::vector<CompletionWord> completion_words(Command command);

/// All names of options that a value follows, of all subcommands, separated by `separator`.
std::string names_with_value(std::string_view separator);

/// `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace cli
