// Any text as a saved machine profile: refused with a sentence, or one that is written and read
// again as the same.
#include "cli/profile_json.h"
#include "tests/fuzz/bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Bytes bytes(data, size);
  const auto profile = cli::profile_from_json(bytes.rest());
  if (!profile.ok()) {
    CHECK(!profile.error().message.empty(), "an error without a sentence");
    return 0;
  }
  const std::string text = cli::profile_to_json(*profile);
  const auto again = cli::profile_from_json(text);
  CHECK(again.ok(), "its own text is refused: ", again.error().message, ": ", text);
  CHECK(cli::profile_to_json(*again) == text, "another profile came back");
  return 0;
}
