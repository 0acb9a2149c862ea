// Any token list as a vocabulary: refused with a sentence, or a tokenizer that takes any text.
#include "model/detokenizer.h"
#include "tests/fuzz/bytes.h"

namespace {

using fuzz::Bytes;

constexpr const char* kModels[] = {"gpt2", "llama", "bert", ""};
constexpr const char* kPre[] = {"qwen2",       "gpt-2",     "llama-bpe", "deepseek-llm", "tekken",
                                "deepseek-v3", "starcoder", "falcon",    "nonsense",     ""};
constexpr const char* kIds[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
                                "tokenizer.ggml.padding_token_id"};
constexpr const char* kFlags[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix",
                                  "tokenizer.ggml.add_eos_token"};

/// A token: a byte, a hexadecimal byte token, a blank of either alphabet, or any text.
std::string token(Bytes& bytes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  switch (bytes.below(6)) {
    case 0: return std::string(1, static_cast<char>('!' + bytes.below(94)));
    case 1: {
      const uint8_t value = bytes.byte();
      return std::string("<0x") + kDigits[value >> 4] + kDigits[value & 15] + '>';
    }
    case 2: return "\xC4\xA0";      // the blank of byte-level vocabularies
    case 3: return "\xE2\x96\x81";  // the blank of SentencePiece
    default: return bytes.text();
  }
}

model::Metadata metadata_of(Bytes& bytes) {
  model::Metadata metadata;
  metadata.set("tokenizer.ggml.model", std::string(bytes.one_of(kModels)));
  metadata.set("tokenizer.ggml.pre", std::string(bytes.one_of(kPre)));
  for (const char* key : kIds)
    if (bytes.flag()) metadata.set(key, int64_t{bytes.number<int8_t>()});
  for (const char* key : kFlags)
    if (bytes.flag()) metadata.set(key, bytes.flag());
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  std::vector<double> scores;
  for (size_t count = bytes.below(64); count > 0; count--) {
    tokens.push_back(token(bytes));
    types.push_back(bytes.byte() & 7);
    scores.push_back(bytes.number<float>());
  }
  for (size_t count = bytes.below(32); count > 0; count--)
    merges.push_back(bytes.flag() || tokens.empty()
                         ? bytes.text()
                         : bytes.one_of(tokens) + ' ' + bytes.one_of(tokens));
  if (bytes.below(8) == 0) types.resize(bytes.below(64));
  if (bytes.below(8) == 0) scores.resize(bytes.below(64));
  metadata.set("tokenizer.ggml.tokens", std::move(tokens));
  if (bytes.below(8) != 0) metadata.set("tokenizer.ggml.token_type", std::move(types));
  if (bytes.below(8) != 0) metadata.set("tokenizer.ggml.scores", std::move(scores));
  if (bytes.below(8) != 0) metadata.set("tokenizer.ggml.merges", std::move(merges));
  return metadata;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const model::Metadata metadata = metadata_of(bytes);
  base::NullLog log;
  const auto tokenizer = model::Tokenizer::create(metadata, &log);
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.error().message.empty(), "an error without a sentence");
    return 0;
  }
  const bool special = bytes.flag();
  const auto ids = tokenizer->encode(bytes.rest(), {.parse_special = special, .add_bos = true});
  for (const int32_t id : ids) {
    CHECK(tokenizer->is_valid(id), "an id that does not exist: ", id);
    tokenizer->ends_generation(id);
  }
  model::StreamingDetokenizer stream(*tokenizer, {});
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  text += stream.finish();
  CHECK(text == model::detokenize(*tokenizer, ids, {}), "token by token, the text is another");
  return 0;
}
