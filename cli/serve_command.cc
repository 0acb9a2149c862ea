// `numoe serve`: the cluster of this host behind the OpenAI API.
#include <sys/stat.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/cat.h"
#include "broker/api/prompts.h"
#include "broker/http/api_keys.h"
#include "broker/http/server.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "cli/input.h"
#include "cli/serve_loop.h"
#include "model/chat_template.h"

namespace cli {

namespace {

base::Result<broker::ApiKeys> read_keys(const std::string& path, SignalWatch& signals) {
  if (path.empty()) return broker::ApiKeys();
  struct stat file {};
  if (stat(path.c_str(), &file) == 0 && (file.st_mode & (S_IROTH | S_IWOTH)) != 0)
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("everybody on this machine can read or change the API keys in ",
                                 path, "; protect them with: chmod 600 ", path)};
  ASSIGN_OR_RETURN(const std::string text, read_file(path, signals));
  auto keys = broker::ApiKeys::from_text(text);
  if (!keys.ok())
    return base::Error{keys.error().code, base::cat(path, ": ", keys.error().message)};
  return keys;
}

broker::ServedModel served_model(const Options& options, const ModelText& text) {
  broker::ServedModel model;
  model.id =
      options.alias.empty() ? std::filesystem::path(options.model).stem().string() : options.alias;
  model.created = static_cast<int64_t>(std::time(nullptr));
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(options.model, unknown);
  model.size_bytes = unknown ? 0 : static_cast<int64_t>(bytes);
  model.vocabulary = text.tokenizer.size();
  if (const auto name = text.metadata.string("general.architecture"); name.ok())
    model.architecture = *name;
  return model;
}

broker::HttpOptions http_options(const Options& options) {
  broker::HttpOptions http;
  http.host = options.host;
  http.port = static_cast<int>(options.port);
  http.limits.body_bytes_max = static_cast<uint64_t>(options.max_body_mib) << 20;
  http.bodies_bytes_max = std::max(http.bodies_bytes_max, 2 * http.limits.body_bytes_max);
  http.slots_max = static_cast<int>(options.parallel + options.queue);
  http.defaults.sampling = sampling(options);
  http.log_requests = options.log_requests;
  return http;
}

/// For chats; without one they are refused with a sentence.
std::optional<model::ChatTemplate> open_template(const ModelText& text, base::Log& log) {
  auto chat = model::ChatTemplate::create(text.metadata, text.tokenizer, {});
  if (chat.ok()) return std::move(*chat);
  log.warning(base::cat(chat.error().message, "; chats are refused, completions work"));
  return std::nullopt;
}

}  // namespace

base::Status serve(Context& context) {
  const Options& options = context.options;
  ASSIGN_OR_RETURN(const broker::ApiKeys keys, read_keys(options.api_key_file, context.signals));
  ASSIGN_OR_RETURN(const ModelText text, open_text(options.model, context.log));
  std::optional<model::ChatTemplate> chat = open_template(text, context.log);
  broker::PromptReader prompts(text.tokenizer, chat ? &*chat : nullptr);
  broker::HttpOptions http = http_options(options);
  const int slots_max = http.slots_max;
  ASSIGN_OR_RETURN(const auto gate, broker::Gate::create(static_cast<size_t>(slots_max)));
  const base::SteadyClock clock;
  broker::HttpParts parts{.gate = *gate,
                          .tokenizer = text.tokenizer,
                          .prompts = prompts,
                          .keys = keys,
                          .log = context.log,
                          .clock = clock,
                          .model = served_model(options, text),
                          .end_tokens = end_tokens(text.tokenizer),
                          .random_bits = random_bits};
  ASSIGN_OR_RETURN(const auto server, broker::HttpServer::start(std::move(http), std::move(parts)));
  context.log.info(base::cat("listening on ", server->url()));
  // Before any of it is loaded: clients are told meanwhile that it loads.
  ASSIGN_OR_RETURN(const Layout layout, choose_layout(options, context.log));
  std::fputs(layout.text.c_str(), stderr);
  ServeLoopOptions loop{.cluster = cluster_options(context, layout),
                        .groups = layout.groups,
                        .slots_max = slots_max,
                        .drain_time = options.drain_seconds * broker::kSecond};
  RETURN_IF_ERROR(use_expert_counts(options, loop.cluster.rank));
  const auto replicas = static_cast<int64_t>(loop.groups.size());
  loop.cluster.rank.sequences = static_cast<int>((options.parallel + replicas - 1) / replicas);
  loop.cluster.silence_max = options.hang_seconds * broker::kSecond;
  loop.cluster.supervised = {{.orphan_ns = options.orphan_seconds * broker::kSecond}};
  loop.when_ready = base::cat("the model is ready; try: curl ", server->url(), "/v1/completions ",
                              keys.required() ? "-H 'Authorization: Bearer KEY' " : "",
                              "-H 'Content-Type: application/json' -d '{\"prompt\": \"Once upon a "
                              "time\", \"max_tokens\": 50}'");
  for (const std::string& line : start_warnings_here(options)) context.log.warning(line);
  return ServeLoop(std::move(loop), {context.factory, context.signals, context.log, *gate, *server})
      .run();
}

}  // namespace cli
