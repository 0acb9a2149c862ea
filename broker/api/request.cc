#include "broker/api/request.h"

#include <limits>
#include <utility>

#include "base/cat.h"
#include "broker/api/json.h"
#include "broker/api/request_parts.h"

namespace broker {

namespace {

constexpr size_t kFieldsMax = 256;  // of a body: every reader walks through them
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

void read_one_stop(Fields& body, const std::string& path, const Json& stop,
                   const RequestLimits& limits, std::vector<std::string>& stops) {
  if (stop.string() == nullptr)
    return body.fail(path, base::cat(path, " is ", describe(stop), "; it must be a string"));
  const std::string& text = *stop.string();
  if (text.empty())
    return body.fail(path, base::cat(path,
                                     " is empty, which would end every answer at once; leave "
                                     "it out or give some text"));
  if (text.size() > limits.stop_bytes_max)
    return body.fail(path, base::cat(path, " has ", text.size(), " bytes, at most ",
                                     limits.stop_bytes_max, " are allowed"));
  stops.push_back(text);
}

void read_stop(Fields& body, const RequestLimits& limits, std::vector<std::string>& stops) {
  const Json* const stop = body.find("stop");
  if (stop == nullptr) return;
  if (stop->string() != nullptr) return read_one_stop(body, "stop", *stop, limits, stops);
  if (stop->array() == nullptr)
    return body.wrong("stop", "it must be a string or an array of them");
  if (stop->array()->size() > limits.stops_max)
    return body.fail("stop", base::cat("stop has ", stop->array()->size(), " strings, at most ",
                                       limits.stops_max, " are allowed"));
  for (size_t i = 0; i < stop->array()->size(); i++)
    read_one_stop(body, at("stop", i), (*stop->array())[i], limits, stops);
}

void read_stop_tokens(Fields& body, std::vector<int32_t>& tokens) {
  const Json* const list = body.array("stop_token_ids");
  if (list == nullptr) return;
  constexpr size_t kMax = proto::kStopTokensMax / 2;  // the model's own come on top
  if (list->array()->size() > kMax)
    return body.fail("stop_token_ids", base::cat("stop_token_ids has ", list->array()->size(),
                                                 " ids, at most ", kMax, " are allowed"));
  for (size_t i = 0; i < list->array()->size(); i++) {
    const Json& item = (*list->array())[i];
    const std::optional<int64_t> id = item.integer();
    if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) {
      const std::string path = at("stop_token_ids", i);
      return body.fail(path, base::cat(path, " is ", describe(item), "; it must be a token id"));
    }
    tokens.push_back(static_cast<int32_t>(*id));
  }
}

/// The newest name wins; -1 means no limit only under the name whose users write it so.
void read_max_tokens(Fields& body, std::optional<int64_t>& max_tokens) {
  const std::optional<int64_t> oldest = body.integer("n_predict", {-1, kInt64Max});
  if (oldest && *oldest == 0) body.wrong("n_predict", "it must be at least 1, or -1 for no limit");
  if (oldest && *oldest > 0) max_tokens = oldest;
  for (const char* const key : {"max_tokens", "max_completion_tokens"}) {
    const std::optional<int64_t> value = body.integer(key, {1, kInt64Max});
    if (value) max_tokens = value;
  }
}

void read_choices(Fields& body, const RequestLimits& limits, int& choice_count) {
  const std::optional<int64_t> n = body.integer("n", {1, limits.choices_max});
  if (n) choice_count = static_cast<int>(*n);
  const Json* const best_of = body.find("best_of");
  if (best_of != nullptr && best_of->integer() != choice_count)
    body.wrong("best_of", base::cat("answers are not ranked, so it must be the same as n (",
                                    choice_count, ") or left out"));
}

void read_stream(Fields& body, std::optional<ApiError>& error, CompletionRequest& request) {
  body.boolean("stream", request.stream);
  const Json* const options = body.object("stream_options");
  if (options == nullptr) return;
  Fields(*options, "stream_options", error).boolean("include_usage", request.include_usage);
}

void read_text_options(Fields& body, CompletionRequest& request) {
  body.boolean("echo", request.echo);
  body.boolean("parse_special", request.parse_special);
  body.boolean("add_special", request.add_special);
  body.boolean("add_special_tokens", request.add_special);
}

}  // namespace

std::optional<ApiError> parse_request(Endpoint endpoint, std::string_view text,
                                      const RequestDefaults& defaults, uint64_t random_seed,
                                      CompletionRequest& request) {
  request = CompletionRequest{.endpoint = endpoint, .sampling = defaults.sampling};
  const RequestLimits& limits = defaults.limits;
  Json json;
  if (auto error = parse_json(text, {.depth_max = limits.depth_max}, json)) return error;
  if (json.object() == nullptr)
    return ApiError{.message = base::cat("the body is ", describe(json),
                                         "; it must be a JSON object with the request's fields")};
  if (json.object()->size() > kFieldsMax)
    return ApiError{.message = base::cat("the body has ", json.object()->size(),
                                         " fields, at most ", kFieldsMax, " are allowed")};
  std::optional<ApiError> error;
  Fields body(json, "", error);
  body.text("model", request.model);
  refuse_unsupported(endpoint, body);
  read_sampling(body, random_seed, request.sampling);
  read_max_tokens(body, request.max_tokens);
  read_choices(body, limits, request.choice_count);
  read_stop(body, limits, request.stop);
  read_stop_tokens(body, request.stop_tokens);
  body.boolean("ignore_eos", request.ignore_eos);
  read_stream(body, error, request);
  if (endpoint == Endpoint::kCompletions) {
    read_text_options(body, request);
    read_prompts(body, limits, request);
  } else {
    read_chat(body, error, request);
  }
  return error;
}

std::optional<ApiError> check_model(const CompletionRequest& request,
                                    std::span<const std::string> served_names) {
  if (request.model.empty()) return std::nullopt;
  std::string names;
  for (const std::string& name : served_names) {
    if (name == request.model) return std::nullopt;
    names += base::cat(names.empty() ? "" : ", ", name);
  }
  return ApiError{.status = 404,
                  .message = base::cat("the model ", describe(Json(Json::Value(request.model))),
                                       " does not exist here; this server has ", names),
                  .param = "model",
                  .code = "model_not_found"};
}

}  // namespace broker
