// Any bytes as a model file: refused with a sentence, or a model that the rest of the program can
// describe and divide.
#include "model/gguf.h"
#include "tests/fuzz/checked_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  model::MemoryFile whole("whole.gguf", bytes);
  fuzz::check_model(model::parse_gguf(whole), whole.size());
  fuzz::HeaderFile padded("header.gguf", bytes);
  fuzz::check_model(model::parse_gguf(padded), padded.size());
  return 0;
}
