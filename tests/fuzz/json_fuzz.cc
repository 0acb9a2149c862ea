// Any text as JSON: refused with a sentence, or a value that reads back from its own text as the
// same.
#include "broker/api/json.h"
#include "tests/fuzz/bytes.h"

namespace {

int depth_of(const broker::Json& json) {
  int depth = 0;
  if (const auto* array = json.array()) {
    for (const broker::Json& item : *array) depth = std::max(depth, depth_of(item));
    return depth + 1;
  }
  if (const auto* object = json.object()) {
    for (const auto& member : *object) depth = std::max(depth, depth_of(member.value));
    return depth + 1;
  }
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  const broker::JsonLimits limits = {.depth_max = 8, .values_max = 64};
  broker::Json json;
  if (const auto error = broker::parse_json(bytes.rest(), limits, json)) {
    CHECK(error->status == 400 && !error->message.empty(), error->status, error->message);
    CHECK(!broker::error_json(*error).empty(), "no object for the client");
    return 0;
  }
  CHECK(depth_of(json) <= limits.depth_max, "deeper than allowed");
  CHECK(!broker::describe(json).empty(), "nothing to say about a value");
  const std::string text = broker::to_text(json);
  broker::Json again;
  const auto error = broker::parse_json(text, limits, again);
  CHECK(!error, "its own text is refused: ", text, ": ", error->message);
  CHECK(again.value().index() == json.value().index(), "another kind of value: ", text);
  CHECK(broker::to_text(again) == text, "another value: ", text);
  return 0;
}
