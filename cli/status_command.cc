// `numoe status`: asks a running server how it is, and with --placement where its memory lies.
#include <algorithm>

#include "base/cat.h"
#include "broker/api/json.h"
#include "cli/commands.h"
#include "cli/expert_use.h"
#include "cli/http_client.h"
#include "cli/input.h"
#include "cli/placement_table.h"
#include "cli/probe_report.h"
#include "cli/status_report.h"

namespace cli {

namespace {

/// The first key of a file as `serve` reads it: one a line, # for comments.
base::Result<std::string> read_key(const std::string& path, SignalWatch& signals) {
  if (path.empty()) return std::string();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, signals));
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.remove_suffix(1);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (!line.empty() && line.front() != '#') return std::string(line);
  }
  return base::Error{base::Code::kInvalidArgument, base::cat("there is no key in ", path)};
}

base::Result<ServerAddress> address_of(const Options& options) {
  if (!options.url.empty()) return parse_address(options.url);
  return ServerAddress{.host = options.host, .port = static_cast<int>(options.port)};
}

/// The sentence of an error that the server tells, or its status.
std::string sentence_of(const HttpReply& reply) {
  broker::Json json;
  if (!broker::parse_json(reply.body, {}, json)) {
    const broker::Json* error = json.find("error");
    const broker::Json* message = error == nullptr ? nullptr : error->find("message");
    if (message != nullptr && message->string() != nullptr) return *message->string();
  }
  return base::cat("it answers ", reply.status);
}

base::Result<std::string> ask(const HttpQuestion& question) {
  ASSIGN_OR_RETURN(HttpReply reply, http_get(question));
  if (reply.status == 200) return std::move(reply.body);
  const std::string where = base::cat(question.address.url(), question.path, ": ");
  if (reply.status == 401)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat(where, "it wants an API key; give one with --api-key-file")};
  return base::Error{reply.status == 404 ? base::Code::kUnsupported : base::Code::kUnavailable,
                     base::cat(where, sentence_of(reply))};
}

}  // namespace

base::Status status(Context& context) {
  const Options& options = context.options;
  HttpQuestion question;
  ASSIGN_OR_RETURN(question.address, address_of(options));
  ASSIGN_OR_RETURN(question.api_key, read_key(options.api_key_file, context.signals));
  question.give_up = [&context] { return context.signals.asked_to_end(); };
  question.path = "/status";
  ASSIGN_OR_RETURN(const std::string state, ask(question));
  std::string placement;
  if (options.placement) {
    question.path = "/placement";
    ASSIGN_OR_RETURN(placement, ask(question));
  }
  std::string experts;
  if (options.experts) {
    question.path = "/experts";
    ASSIGN_OR_RETURN(experts, ask(question));
  }
  if (options.json && options.experts) return print(experts + "\n");
  if (options.json)
    return print(options.placement
                     ? base::cat("{\"status\":", state, ",\"placement\":", placement, "}\n")
                     : state + "\n");
  ASSIGN_OR_RETURN(std::string text, status_text(question.address.url(), state));
  if (options.experts) {
    ASSIGN_OR_RETURN(const std::string table, expert_use_table(experts));
    text += "\n" + table;
  }
  if (options.placement) {
    ASSIGN_OR_RETURN(const auto groups, placement_from_json(placement));
    for (size_t group = 0; group < groups.size(); group++) {
      const std::string name = groups.size() > 1 ? base::cat("replica ", group, ": ") : "";
      text += base::cat("\n", name, placement_table(groups[group]));
      for (const std::string& line : placement_warnings(groups[group]))
        context.log.warning(name + line);
    }
  }
  return print(text);
}

}  // namespace cli
