// Completion scripts for shells, made from the option table, so that they know what the parser
// knows.
//
// Subcommands, the options of each, the choices of enumerated values, files where a value names
// one (GGUF files first for models), nothing where it is a number or text. `worker`, which people
// do not call, is left out. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace cli {

/// REQUIRES: "bash", "zsh" or "fish", the choices of `numoe completion`.
std::string completion_script(std::string_view shell);

}  // namespace cli
