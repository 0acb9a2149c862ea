// The rows of the command line: which options there are, of which subcommands, and what they may
// be.
//
// Private to the folder: the parser (options.cc) and shell completion are made from it. Any thread.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace cli {

/// Subcommands as bits, so that a row can belong to several.
constexpr unsigned bit(Command command) {
  return 1u << static_cast<unsigned>(command);
}

/// The field that an option fills in.
using Target =
    std::variant<bool Options::*, int64_t Options::*, double Options::*, uint64_t Options::*,
                 std::string Options::*, std::optional<std::string> Options::*,
                 std::optional<uint64_t> Options::*, std::vector<int32_t> Options::*,
                 std::vector<std::string> Options::*>;

struct OptionRow {
  const char* names;  // "-p,--prompt"; without a dash: positional
  const char* value;  // its name in the help; empty for flags
  std::string help;
  unsigned commands;
  Target target;
  double min = -std::numeric_limits<double>::infinity();  // of numbers
  double max = std::numeric_limits<double>::infinity();
  std::string choices = {};  // of strings, separated by blanks; empty: any
  enum { kOptional, kRequired } presence = kOptional;
};

struct CommandRow {
  Command command;
  const char* name;
  const char* help;
};

/// In the order of the help.
std::vector<OptionRow> option_rows();
std::span<const CommandRow> command_rows();

}  // namespace cli
