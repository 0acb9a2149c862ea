#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <string_view>
#include <variant>

#include "base/cat.h"
#include "cli/option_table.h"

namespace cli {

namespace {

/// A range check that NaN does not pass.
CLI::Validator within(double min, double max) {
  return CLI::Validator(
      [min, max](const std::string& text) -> std::string {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size() && value >= min &&
            value <= max)
          return {};
        return base::cat("must be a number from ", min, " to ", max, ", not \"", text, "\"");
      },
      "");
}

/// What strtoull would take for a number modulo 2^64 is none.
CLI::Validator unsigned_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc() && end == text.data() + text.size()) return {};
        return base::cat("must be a whole number from 0 to 2^64 - 1, not \"", text, "\"");
      },
      "");
}

CLI::Validator one_of(const std::string& choices) {
  return CLI::Validator(
      [choices](const std::string& text) -> std::string {
        for (const std::string& choice : CLI::detail::split(choices, ' '))
          if (text == choice) return {};
        return base::cat("must be one of ", choices, ", not \"", text, "\"");
      },
      "");
}

template <class Value>
CLI::Option* add(CLI::App& app, const OptionRow& row, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return app.add_flag(row.names, value, row.help);
  } else {
    CLI::Option* option = app.add_option(row.names, value, row.help)->type_name(row.value);
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) {
      option->check(within(row.min, row.max));
      if (row.commands != bit(Command::kWorker)) option->capture_default_str();
    } else if constexpr (std::is_same_v<Value, std::vector<int32_t>>) {
      option->check(within(row.min, row.max));
    } else if constexpr (std::is_same_v<Value, std::optional<uint64_t>>) {
      option->check(unsigned_number());
    } else if (!row.choices.empty()) {
      option->check(one_of(row.choices));
    }
    return option;
  }
}

/// Read by the program as a whole, before values are required, so that a file can give any of them.
void add_config(CLI::App& app, CLI::App& command, const OptionRow& row) {
  app.set_config(row.names)->group("");  // named in the help of the command instead
  app.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt option is not ignored
  command.fallthrough();
  command.footer(base::cat(row.names, " ", row.value, "   ", row.help));
}

void add_command(CLI::App& app, const CommandRow& row, const std::vector<OptionRow>& rows,
                 Options& options) {
  CLI::App* command = app.add_subcommand(row.name, row.help);
  if (row.command == Command::kWorker) command->group("");  // not in the help
  command->callback([&options, &row] { options.command = row.command; });
  for (const OptionRow& option : rows) {
    if ((option.commands & bit(row.command)) == 0) continue;
    if (option.names == std::string_view("--config")) {
      add_config(app, *command, option);
      continue;
    }
    std::visit(
        [&](auto member) {
          add(*command, option, options.*member)->required(option.presence == OptionRow::kRequired);
        },
        option.target);
  }
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
  ParsedOptions parsed;
  CLI::App app("numoe: large mixture-of-experts models on the CPUs of one machine", "numoe");
  app.set_version_flag("--version", base::cat("numoe ", version()));
  app.require_subcommand(1);
  const std::vector<OptionRow> rows = option_rows();
  for (const CommandRow& row : command_rows()) add_command(app, row, rows, parsed.options);
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool is_command = std::any_of(command_rows().begin(), command_rows().end(),
                                      [&](const CommandRow& row) { return first == row.name; });
  if (!first.empty() && !first.starts_with('-') && !is_command) {
    // CLI11 would only say that some subcommand is missing.
    parsed.exit_code = 2;
    parsed.message = base::cat("numoe: there is no subcommand \"", first, "\"; see numoe --help\n");
    return parsed;
  }
  // A name of more letters has two dashes here; llama-bench writes this one with one.
  std::vector<const char*> words(argv, argv + argc);
  for (size_t i = 1; i < words.size() && first == "bench"; i++)
    if (words[i] == std::string_view("-pg")) words[i] = "--pg";
  try {
    app.parse(argc, words.data());
  } catch (const CLI::CallForHelp&) {
    // The subcommand's own help if one was named.
    const auto named = app.get_subcommands();
    parsed.exit_code = 0;
    parsed.message = named.empty() ? app.help() : named.front()->help();
  } catch (const CLI::CallForVersion& version) {
    parsed.exit_code = 0;
    parsed.message = base::cat(version.what(), "\n");
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = 2;
    parsed.message = base::cat("numoe: ", error.what(), "; see numoe --help\n");
  }
  return parsed;
}

const char* version() {
  return NUMOE_VERSION;
}

base::Result<std::vector<int32_t>> parse_ids(std::string_view option, std::string_view text,
                                             int32_t min) {
  constexpr std::string_view kBetween = " ,\n\t";
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;
       at = text.find_first_not_of(kBetween, at)) {
    const std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    int32_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < min)
      return base::Error{
          base::Code::kInvalidArgument,
          base::cat(option, " needs whole numbers from ", min, " to ",
                    std::numeric_limits<int32_t>::max(), ", as in \"1 2 3\", not \"", word, "\"")};
    ids.push_back(id);
    at += word.size();
  }
  if (ids.empty())
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(option, " needs at least one number, as in \"1 2 3\"")};
  return ids;
}

}  // namespace cli
