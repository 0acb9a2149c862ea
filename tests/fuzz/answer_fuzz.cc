// Any tokens in any chunks with any stop strings: the pieces of a stream joined, the plain answer,
// and the text cut at the leftmost stop by searching all of it are the same.
#include "broker/api/answer.h"
#include "broker/api/json.h"
#include "tests/fuzz/bytes.h"
#include "tests/model/tokenizer_support.h"

namespace {

using fuzz::Bytes;
using Ids = std::vector<int32_t>;

struct Case {
  broker::CompletionRequest request;
  std::vector<proto::TokenChunk> chunks;
};

/// Stops over a small alphabet, so that they overlap with each other and with the tokens.
std::string stop_text(Bytes& bytes) {
  std::string text;
  for (size_t count = 1 + bytes.below(5); count > 0; count--)
    text += bytes.below(8) == 0 ? std::string("\xC3\xA9") : std::string(1, "abc "[bytes.below(4)]);
  return text;
}

Case read_case(Bytes& bytes) {
  Case it;
  it.request.endpoint =
      bytes.flag() ? broker::Endpoint::kChatCompletions : broker::Endpoint::kCompletions;
  it.request.prompts = {"a prompt"};
  for (size_t count = bytes.below(4); count > 0; count--)
    it.request.stop.push_back(stop_text(bytes));
  it.request.include_usage = bytes.flag();
  const bool simple = bytes.flag();
  while (!bytes.empty() && it.chunks.size() < 64) {
    proto::TokenChunk& chunk = it.chunks.emplace_back();
    for (size_t count = bytes.below(4); count > 0; count--)
      chunk.tokens.push_back(simple ? "abc "[bytes.below(4)] : bytes.number<int16_t>());
  }
  it.chunks.emplace_back().finish = proto::Finish::kLength;
  return it;
}

std::string expected_text(const Case& it, const model::Tokenizer& tokenizer) {
  Ids ids;
  for (const auto& chunk : it.chunks)
    ids.insert(ids.end(), chunk.tokens.begin(), chunk.tokens.end());
  std::string text = model::detokenize(tokenizer, ids, {});
  size_t end = text.size();
  for (const std::string& stop : it.request.stop) end = std::min(end, text.find(stop));
  return text.substr(0, end);
}

broker::Json parsed(std::string_view text) {
  broker::Json json;
  const auto error = broker::parse_json(text, {}, json);
  CHECK(!error, "an answer that is no JSON: ", text);
  return json;
}

/// The text in the first choice of an answer or event; nothing if it has none.
std::string text_of(const broker::Json& answer) {
  const broker::Json* choices = answer.find("choices");
  CHECK(choices != nullptr && choices->array() != nullptr, "an answer without choices");
  if (choices->array()->empty()) return {};
  const broker::Json* at = &choices->array()->front();
  for (const char* key : {"message", "delta"})
    if (const broker::Json* inner = at->find(key)) at = inner;
  for (const char* key : {"text", "content"})
    if (const broker::Json* text = at->find(key))
      if (text->string() != nullptr) return *text->string();
  return {};
}

std::string joined(std::string_view events) {
  constexpr std::string_view kBegin = "data: ", kEnd = "\n\n", kDone = "[DONE]";
  std::string text;
  bool done = false;
  while (!events.empty()) {
    const size_t end = events.find(kEnd);
    CHECK(!done && events.starts_with(kBegin) && end != events.npos, "not an event: ", events);
    const std::string_view data = events.substr(kBegin.size(), end - kBegin.size());
    done = data == kDone;
    if (!done) text += text_of(parsed(data));
    events.remove_prefix(end + kEnd.size());
  }
  CHECK(done, "a stream without its end");
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const model::Tokenizer tokenizer =
      model_test::make_tokenizer(model_test::byte_pair_vocabulary(
          {.merges = {"a b", "b c", "ab c"}, .extra = {{"<|c|>", 3}}}));
  Bytes bytes(data, size);
  Case it = read_case(bytes);
  const std::string expected = expected_text(it, tokenizer);
  const broker::AnswerOptions options = {.id = "cmpl-1", .created = 1, .model = "m"};

  broker::Answer plain(it.request, {{1, 2}}, tokenizer, options);
  it.request.stream = true;
  broker::Answer stream(it.request, {{1, 2}}, tokenizer, options);
  std::string events = stream.opening();
  for (const proto::TokenChunk& chunk : it.chunks) {
    plain.on_chunk(0, chunk);
    events += stream.on_chunk(0, chunk).events;
  }
  CHECK(plain.finished() && stream.finished(), "the last chunk does not end an answer");
  events += stream.closing();
  const std::string text = text_of(parsed(plain.json()));
  CHECK(text == expected, "the plain answer is \"", text, "\", not \"", expected, "\"");
  CHECK(joined(events) == expected, "the stream says \"", joined(events), "\", not \"", expected,
        "\"");
  return 0;
}
