#include "broker/http/status_pages.h"

#include "base/cat.h"
#include "broker/api/json_writer.h"

namespace broker {

const char* state_name(GroupStatus::State state) {
  switch (state) {
    case GroupStatus::State::kLoading: return "loading";
    case GroupStatus::State::kReady: return "ready";
    case GroupStatus::State::kRestarting: return "restarting";
    case GroupStatus::State::kDraining: return "draining";
  }
  return "unknown";
}

std::string state_sentence(const GroupStatus& status) {
  switch (status.state) {
    case GroupStatus::State::kLoading: return "Loading model";
    case GroupStatus::State::kReady: return status.reason.empty() ? "ready" : status.reason;
    case GroupStatus::State::kRestarting:
      return base::cat("The workers are being started again: ", status.reason);
    case GroupStatus::State::kDraining: return "The server is shutting down";
  }
  return {};
}

namespace {

bool answers(const GroupStatus& status) {
  return status.state == GroupStatus::State::kReady && status.reason.empty();
}

void add_progress(JsonWriter& json, const GroupStatus& status) {
  json.key("progress").begin_object();
  json.field("bytes_done", status.bytes_done).field("bytes_total", status.bytes_total);
  json.key("percent");
  if (status.bytes_total == 0)
    json.null();  // rather than a guess
  else
    json.value(static_cast<int>(
        100 * (static_cast<double>(status.bytes_done) / static_cast<double>(status.bytes_total))));
  json.end_object();
}

void add_model(JsonWriter& json, const ServedModel& model, const GroupStatus& status) {
  json.begin_object().field("id", model.id).field("object", "model");
  json.field("created", model.created).field("owned_by", "numoe");
  json.key("meta").begin_object();
  json.field("architecture", model.architecture).field("vocab_size", model.vocabulary);
  json.field("size_bytes", model.size_bytes);
  json.key("context_length");
  if (status.context == 0)
    json.null();
  else
    json.value(status.context);
  json.end_object().end_object();
}

Response page(const GroupStatus& status, std::string body) {
  Response response{.body = std::move(body)};
  if (answers(status)) return response;
  response.status = 503;
  response.fields.emplace_back("Retry-After", base::cat(status.retry_seconds));
  return response;
}

}  // namespace

Response live_page(const GroupStatus& status) {
  if (status.stalled) return {.status = 503, .body = "{\"status\":\"stalled\"}"};
  return {.body = "{\"status\":\"ok\"}"};
}

Response ready_page(const GroupStatus& status) {
  JsonWriter json;
  const bool ready = status.state == GroupStatus::State::kReady;
  const bool silent = ready && !answers(status);
  json.begin_object().field("status", silent ? "silent" : state_name(status.state));
  if (status.groups > 1) json.key("groups").begin_object().field("ready", status.groups_ready);
  if (status.groups > 1) json.field("total", status.groups).end_object();
  if (!ready || silent) json.field("message", state_sentence(status));
  if (!ready) add_progress(json, status);
  return page(status, json.end_object().take());
}

Response health_page(const GroupStatus& status) {
  if (answers(status)) return {.body = "{\"status\":\"ok\"}"};
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("code", 503)
      .field("message", state_sentence(status))
      .field("type", "unavailable_error");
  json.end_object();
  add_progress(json, status);
  return page(status, json.end_object().take());
}

Response models_page(const ServedModel& model, const GroupStatus& status) {
  JsonWriter json;
  json.begin_object().field("object", "list").key("data").begin_array();
  add_model(json, model, status);
  return {.body = json.end_array().end_object().take()};
}

Response model_page(const ServedModel& model, const GroupStatus& status, const std::string& id) {
  if (id != model.id)
    return {.status = 404,
            .body = error_json({.status = 404,
                                .message = base::cat("there is no model \"", id.substr(0, 200),
                                                     "\"; this server has \"", model.id, "\""),
                                .param = "model",
                                .code = "model_not_found"})};
  JsonWriter json;
  add_model(json, model, status);
  return {.body = json.take()};
}

std::optional<Refusal> not_ready(const GroupStatus& status) {
  if (status.state == GroupStatus::State::kReady) return std::nullopt;
  return Refusal{.error = {.status = 503,
                           .message = base::cat(state_sentence(status), "; try again later"),
                           .type = "server_error",
                           .code = "model_not_ready"}};
}

}  // namespace broker
