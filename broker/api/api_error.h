// What a client did wrong, or what went wrong for it, in the words and fields of the OpenAI API.
//
// Plain values; any thread.
#pragma once

#include <string>

#include "base/result.h"

namespace broker {

struct ApiError {
  int status = 400;                            // of HTTP
  std::string message = {};                    // one sentence: what is wrong, what to do
  std::string type = "invalid_request_error";  // or "server_error", "authentication_error", …
  std::string param = {};  // the field, as in "messages[1].content"; empty: null in the object
  std::string code = {};   // as "context_length_exceeded"; empty: null
};

/// {"error":{"message":…,"type":…,"param":…,"code":…}}
std::string error_json(const ApiError& error);

/// What a client is told when the cluster says `error`: kInvalidArgument 400, kNotFound 404,
/// kUnavailable 503, kTimeout 504, everything else 500.
ApiError api_error(const base::Error& error);

}  // namespace broker
