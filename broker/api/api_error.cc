#include "broker/api/api_error.h"

#include "broker/api/json_writer.h"

namespace broker {

namespace {

void text_or_null(JsonWriter& json, std::string_view key, std::string_view text) {
  json.key(key);
  if (text.empty())
    json.null();
  else
    json.value(text);
}

}  // namespace

std::string error_json(const ApiError& error) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error.type);
  text_or_null(json, "param", error.param);
  text_or_null(json, "code", error.code);
  return json.end_object().end_object().take();
}

ApiError api_error(const base::Error& error) {
  ApiError out{.status = 500, .message = error.message, .type = "server_error"};
  switch (error.code) {
    case base::Code::kInvalidArgument:
      out.status = 400;
      out.type = "invalid_request_error";
      break;
    case base::Code::kNotFound:
      out.status = 404;
      out.type = "invalid_request_error";
      break;
    case base::Code::kUnavailable: out.status = 503; break;
    case base::Code::kTimeout: out.status = 504; break;
    default: break;
  }
  return out;
}

}  // namespace broker
