// Any text as a saved machine profile: refused with a sentence, or one that is written and read
// again with every figure. (Boost.JSON may read a number's last bit otherwise.)
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
  CHECK(again->fingerprint == profile->fingerprint && again->notes == profile->notes &&
            again->memory.size() == profile->memory.size() &&
            again->bandwidth.size() == profile->bandwidth.size() &&
            again->latency.size() == profile->latency.size() &&
            again->lines.size() == profile->lines.size() &&
            again->exchanges.size() == profile->exchanges.size(),
        "another profile came back: ", text);
  return 0;
}
