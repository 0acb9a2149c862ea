#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <string_view>
#include <variant>

#include "base/cat.h"
#include "base/limits.h"
#include "kernels/ops.h"

namespace cli {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Subcommands as bits, so that a row can belong to several.
constexpr unsigned bit(Command command) {
  return 1u << static_cast<unsigned>(command);
}
constexpr unsigned kRun = bit(Command::kRun), kLogits = bit(Command::kLogits),
                   kTokenize = bit(Command::kTokenize), kDetokenize = bit(Command::kDetokenize),
                   kPerplexity = bit(Command::kPerplexity), kInspect = bit(Command::kInspect),
                   kWorker = bit(Command::kWorker);
constexpr unsigned kComputes = kRun | kLogits | kPerplexity;
constexpr unsigned kAll = kComputes | kTokenize | kDetokenize | kInspect | kWorker;

using Target =
    std::variant<bool Options::*, int64_t Options::*, double Options::*, uint64_t Options::*,
                 std::string Options::*, std::optional<std::string> Options::*,
                 std::optional<uint64_t> Options::*, std::vector<int32_t> Options::*>;

struct Row {
  const char* names;
  const char* value;  // its name in the help; empty for flags
  std::string help;
  unsigned commands;
  Target target;
  double min = -kInfinity, max = kInfinity;  // of numbers
  std::string choices = {};                  // of strings, separated by blanks; empty: any
  enum { kOptional, kRequired } presence = kOptional;
};

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
using O = Options;

// The table, in the order of the help; one function per group of rows.
std::vector<Row> text_rows() {
  return {
      {"model", "MODEL", "GGUF file (of a split model: its first part)", kAll, &O::model, 0, 0, "",
       Row::kRequired},
      {"ids", "IDS", "token ids", kDetokenize, &O::ids, 0, kInt32Max, "", Row::kRequired},
      {"-p,--prompt", "TEXT", "text to continue; without it a chat", kRun, &O::prompt},
      {"-p,--prompt", "TEXT", "text to cut into tokens; without it standard input", kTokenize,
       &O::prompt},
      {"-n,--max-tokens", "N", "tokens to generate; 0: up to the end or the context", kRun,
       &O::max_tokens, 0, kInt32Max},
      {"--tokens", "IDS", "token ids, as in \"1 2 3\"", kLogits, &O::tokens, 0, 0, "",
       Row::kRequired},
      {"-f,--file", "FILE", "text to measure on", kPerplexity, &O::file, 0, 0, "", Row::kRequired},
      {"--system", "TEXT", "system message of the chat", kRun, &O::system},
      {"--special", "", "text that spells a control token becomes that token", kRun | kTokenize,
       &O::special},
      {"--bos", "", "put the beginning-of-sequence token in front", kTokenize, &O::bos},
      {"--json", "", "one JSON object", kInspect, &O::json},
  };
}

std::vector<Row> sampling_rows() {
  return {
      {"--temp", "T", "temperature; 0: always the best token", kRun, &O::temperature, 0, 1000},
      {"--top-k", "K", "sample from the K best; 0: all", kRun, &O::top_k, 0, kInt32Max},
      {"--top-p", "P", "sample from the fewest that reach this share; 1: all", kRun, &O::top_p, 0,
       1},
      {"--min-p", "P", "drop what is less likely than P times the best; 0: nothing", kRun,
       &O::min_p, 0, 1},
      {"--repeat-penalty", "R", "divide the logits of recent tokens; 1: off", kRun,
       &O::repeat_penalty, 0.01, 100},
      {"--presence-penalty", "R", "subtract from recent tokens", kRun, &O::presence_penalty, -2, 2},
      {"--frequency-penalty", "R", "subtract for each recent occurrence", kRun,
       &O::frequency_penalty, -2, 2},
      {"--penalty-window", "N", "tokens that count as recent; -1: all", kRun, &O::penalty_window,
       -1, kInt32Max},
      {"--seed", "S", "of the random draws; without it a new one, which is printed", kRun,
       &O::seed},
      {"--ignore-eos", "", "go on where the model would end", kRun, &O::ignore_eos},
  };
}

std::vector<Row> cluster_rows() {
  constexpr unsigned kBoth = kComputes | kWorker;
  std::string isas = "auto";
  for (const kernels::Ops* ops : kernels::all_ops()) isas += base::cat(" ", ops->name);
  return {
      {"--nodes", "N",
       "ranks, one per NUMA node; more than there are nodes are simulated; 0: all nodes", kComputes,
       &O::nodes, 0, base::kRanksMax},
      {"--threads-per-node", "T",
       "compute threads of a rank; 0: every core of its node, less one on the first node for the "
       "broker from 4 cores up, and no more than the cgroup's CPU quota",
       kComputes, &O::threads_per_node, 0, base::kThreadsPerRankMax},
      {"--isa", "NAME", base::cat("kernels, one of: ", isas), kBoth, &O::isa, 0, 0, isas},
      {"--kv-type", "TYPE", "of the KV cache: f16 or f32; without it f16, with --isa reference f32",
       kBoth, &O::kv_type, 0, 0, "f16 f32"},
      {"--ctx", "N", "positions of one sequence; 0: the model's own, at most 4096", kBoth,
       &O::context, 0, base::kContextMax},
      {"--chunk", "N", "positions computed in one step; 0: 128", kBoth, &O::chunk, 0,
       base::kStepColumnsMax},
      {"--arena-dir", "DIR",
       "where weights lie in shared memory; without it /run/numoe or /dev/shm", kBoth,
       &O::arena_directory},
      {"--stats", "", "the plan beforehand; speed, waits and memory afterwards", kComputes,
       &O::stats},
  };
}

std::vector<Row> worker_rows() {
  return {
      {"--rank", "R", "", kWorker, &O::rank, 0, base::kRanksMax - 1},
      {"--ranks", "N", "", kWorker, &O::ranks, 1, base::kRanksMax},
      {"--group", "ID", "", kWorker, &O::group, 0, 0, "", Row::kRequired},
      {"--endpoint", "URL", "", kWorker, &O::endpoint, 0, 0, "", Row::kRequired},
      {"--incarnation", "N", "", kWorker, &O::incarnation},
      {"--os-node", "N", "", kWorker, &O::os_node, -1, kInt32Max},
      {"--cpus", "LIST", "", kWorker, &O::cpus, 0, 0, "", Row::kRequired},
      {"--oversubscribed", "", "", kWorker, &O::oversubscribed},
  };
}

std::vector<Row> table() {
  std::vector<Row> rows;
  for (const auto& group : {text_rows(), sampling_rows(), cluster_rows(), worker_rows()})
    rows.insert(rows.end(), group.begin(), group.end());
  return rows;
}

struct CommandRow {
  Command command;
  const char* name;
  const char* help;
};

constexpr CommandRow kCommands[] = {
    {Command::kRun, "run", "continue a text, or chat"},
    {Command::kLogits, "logits", "logits of a token sequence as JSON"},
    {Command::kTokenize, "tokenize", "text to token ids"},
    {Command::kDetokenize, "detokenize", "token ids to text"},
    {Command::kPerplexity, "perplexity", "how well a model predicts a text"},
    {Command::kInspect, "inspect", "what a model file holds"},
    {Command::kWorker, "worker", "one rank; started by the others"},
};

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
CLI::Option* add(CLI::App& app, const Row& row, Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return app.add_flag(row.names, value, row.help);
  } else {
    CLI::Option* option = app.add_option(row.names, value, row.help)->type_name(row.value);
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) {
      option->check(within(row.min, row.max));
      if (row.commands != kWorker) option->capture_default_str();
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

void add_command(CLI::App& app, const CommandRow& row, const std::vector<Row>& rows,
                 Options& options) {
  CLI::App* command = app.add_subcommand(row.name, row.help);
  if (row.command == Command::kWorker) command->group("");  // not in the help
  command->callback([&options, &row] { options.command = row.command; });
  for (const Row& option : rows) {
    if ((option.commands & bit(row.command)) == 0) continue;
    std::visit(
        [&](auto member) {
          add(*command, option, options.*member)->required(option.presence == Row::kRequired);
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
  const std::vector<Row> rows = table();
  for (const CommandRow& row : kCommands) add_command(app, row, rows, parsed.options);
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool is_command = std::any_of(std::begin(kCommands), std::end(kCommands),
                                      [&](const CommandRow& row) { return first == row.name; });
  if (!first.empty() && !first.starts_with('-') && !is_command) {
    // CLI11 would only say that some subcommand is missing.
    parsed.exit_code = 2;
    parsed.message = base::cat("numoe: there is no subcommand \"", first, "\"; see numoe --help\n");
    return parsed;
  }
  try {
    app.parse(argc, argv);
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
