// Ids of many texts and what they decode to, for the oracle test: spm_tokens MODEL < frames.
//
// A frame is u32 length and that many bytes. Out comes per frame u32 count, that many i32 ids, u32
// length and the decoded bytes, all little-endian.
#include <cstdio>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/tokenizer.h"

namespace {

class NoLog final : public base::Log {
 public:
  void write(base::Level, std::string_view) override {}
};

/// The count of items, then the items.
void put(const void* items, size_t size, size_t count) {
  const auto narrow = static_cast<uint32_t>(count);
  std::fwrite(&narrow, sizeof narrow, 1, stdout);
  if (count > 0) std::fwrite(items, size, count, stdout);
}

base::Status answer(const char* path) {
  ASSIGN_OR_RETURN(const model::Directory directory, model::read_directory(path));
  NoLog log;
  ASSIGN_OR_RETURN(const model::Tokenizer tokenizer,
                   model::Tokenizer::create(directory.metadata, &log));
  uint32_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    std::string text(length, '\0');
    if (std::fread(text.data(), 1, length, stdin) != length)
      return base::Error{base::Code::kInvalidArgument, "the last frame is not whole"};
    const std::vector<int32_t> ids = tokenizer.encode(text, {});
    put(ids.data(), sizeof(int32_t), ids.size());
    const std::string decoded = tokenizer.decode(ids);
    put(decoded.data(), 1, decoded.size());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: spm_tokens MODEL < frames\n", stderr);
    return 2;
  }
  const base::Status status = answer(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
