// Any words as a command line: an exit code with a message, or options inside the table's bounds.
#include <limits>

#include "cli/option_table.h"
#include "tests/fuzz/bytes.h"

namespace {

bool within(const cli::OptionRow& row, double value) {
  return value >= row.min && value <= row.max;
}

bool is_choice(const cli::OptionRow& row, const std::string& value) {
  return (' ' + row.choices + ' ').find(' ' + value + ' ') != std::string::npos;
}

void check(const cli::Options& options) {
  for (const cli::OptionRow& row : cli::option_rows()) {
    if ((row.commands & cli::bit(options.command)) == 0) continue;
    if (const auto* whole = std::get_if<int64_t cli::Options::*>(&row.target))
      CHECK(within(row, static_cast<double>(options.*(*whole))), row.names);
    if (const auto* number = std::get_if<double cli::Options::*>(&row.target))
      CHECK(within(row, options.*(*number)), row.names);
    const auto* text = std::get_if<std::string cli::Options::*>(&row.target);
    if (text != nullptr && !row.choices.empty() && !(options.*(*text)).empty())
      CHECK(is_choice(row, options.*(*text)), row.names, " is ", options.*(*text));
    if (const auto* ids = std::get_if<std::vector<int32_t> cli::Options::*>(&row.target))
      for (const int32_t id : options.*(*ids)) CHECK(id >= 0, row.names);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  std::vector<std::string> words = {"numoe"};
  // Words end with a line's end; an argument has no zero byte.
  std::string text(bytes.rest());
  std::replace(text.begin(), text.end(), '\0', ' ');
  for (size_t at = 0; at < text.size() && words.size() < 64;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const cli::ParsedOptions parsed = cli::parse_options(static_cast<int>(argv.size()), argv.data());
  if (parsed.exit_code) {
    CHECK(!parsed.message.empty() && (*parsed.exit_code == 0 || *parsed.exit_code == 2),
          "exit code ", *parsed.exit_code);
  } else {
    check(parsed.options);
  }
  const auto ids = cli::parse_ids("--tokens", text, 0);
  if (ids.ok()) CHECK(!ids->empty(), "no ids and no error");
  return 0;
}
