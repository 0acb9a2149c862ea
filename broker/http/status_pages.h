// What the status routes and the list of models say.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "broker/gate.h"
#include "broker/http/response.h"

namespace broker {

/// What is served.
struct ServedModel {
  std::string id = {};     // its name in the API
  int64_t created = 0;     // seconds since the epoch: when it was opened
  int64_t size_bytes = 0;  // of its file
  int64_t vocabulary = 0;
  std::string architecture = {};
};

/// 200 as long as the program runs and its workers move on with what they have to do.
Response live_page(const GroupStatus& status);
/// 200 if requests are accepted now and the workers answer, else 503 with how far loading has come,
/// or who is silent.
Response ready_page(const GroupStatus& status);
/// The same in the words of llama-server.
Response health_page(const GroupStatus& status);

Response models_page(const ServedModel& model, const GroupStatus& status);
/// 404 unless `id` is that model.
Response model_page(const ServedModel& model, const GroupStatus& status, const std::string& id);

/// "loading", "ready", "restarting", "draining".
const char* state_name(GroupStatus::State state);
/// The same as a sentence, with the reason if there is one.
std::string state_sentence(const GroupStatus& status);

/// Why nothing is generated now; nothing if it can be.
std::optional<Refusal> not_ready(const GroupStatus& status);

}  // namespace broker
