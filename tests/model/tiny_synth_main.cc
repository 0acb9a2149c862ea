// Writes a synthetic model small enough for tests: tiny_synth ARCHITECTURE TYPE VOCAB FILE
#include <cstdio>
#include <string_view>

#include "model/synth.h"
#include "tests/model/tiny_synth.h"

namespace {

base::Status write(const char* const* arguments) {
  const std::string_view architecture = arguments[0];
  model::SynthShape shape = model_test::tiny_shape(architecture);
  ASSIGN_OR_RETURN(const model::Directory vocabulary, model::read_directory(arguments[2]));
  const auto* tokens = vocabulary.metadata.strings("tokenizer.ggml.tokens");
  if (tokens != nullptr) shape.vocabulary = static_cast<int64_t>(tokens->size()) + 32;
  ASSIGN_OR_RETURN(
      const model::SynthPlan plan,
      model::plan_synth(shape, {.architecture = architecture, .weight_type = arguments[1]},
                        vocabulary.metadata));
  ASSIGN_OR_RETURN([[maybe_unused]] const uint64_t bytes,
                   model::write_synth(plan, arguments[3], {}));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: tiny_synth ARCHITECTURE TYPE VOCAB FILE\n", stderr);
    return 2;
  }
  const base::Status status = write(argv + 1);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
