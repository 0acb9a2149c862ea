// Any text for vocabularies that have every byte: it has ids, comes back, and costs work in
// proportion; detokenising token by token gives the same text as all at once.
#include <sstream>

#include "model/detokenizer.h"
#include "model/pretokenizer_types.h"
#include "tests/fuzz/bytes.h"
#include "tests/model/tokenizer_support.h"

namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // SentencePiece's mark for a blank

struct Kind {
  std::string pre;  // of byte-level vocabularies; empty: SentencePiece
  model::Tokenizer tokenizer;
};

/// Tokens that merges of different lengths, blanks, digits, marks and half characters lead to.
std::vector<std::string> merges() {
  return {"Z Z", "ZZ ZZ", "9 9",  "99 9", "Ċ Ċ", "ĊĊ ĊĊ", "Ġ Ġ",  "ĠĠ ĠĠ", "å Ń", "åŃ Ĺ",
          "Ġ x", "Ì ģ",   "a Ìģ", "' s",  "a b", "b c",   "ab c", "a bc",  "Ġ a", "Ġa b"};
}

/// The names that are no aliases of others.
std::vector<std::string> pretokenizers() {
  std::vector<std::string> names;
  std::istringstream words(model::known_pretokenizer_names());
  for (std::string word; words >> word;) {
    if (word.ends_with(',')) word.pop_back();
    const model::PretokenizerType* type = model::find_pretokenizer_type(word);
    CHECK(type != nullptr, "a name that is not known: ", word);
    if (type->name == word) names.push_back(word);
  }
  return names;
}

std::vector<Kind> make_kinds() {
  std::vector<Kind> kinds;
  for (const std::string& pre : pretokenizers())
    kinds.push_back({pre, model_test::make_tokenizer(model_test::byte_pair_vocabulary(
                              {.pre = pre,
                               .merges = merges(),
                               .extra = {{"<u>", 4}, {"<|c|>", 3}, {"<|cc|>", 3}}}))});
  for (const bool prefix : {false, true}) {
    model::Metadata metadata =
        model_test::spm_vocabulary({.pieces = {"\xE2\x96\x81", "a",
                                               "\xE2\x96\x81"
                                               "a",
                                               "ab", "abc", "'s", "\xC3\xA9", "99"},
                                    .extra = {{"<u>", 4}, {"<|c|>", 3}}});
    metadata.set("tokenizer.ggml.add_space_prefix", prefix);
    kinds.push_back({"", model_test::make_tokenizer(metadata)});
  }
  return kinds;
}

void check_streaming(const model::Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     model::DetokenizerOptions options) {
  model::StreamingDetokenizer stream(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  text += stream.finish();
  CHECK(text == model::detokenize(tokenizer, ids, options), "token by token, the text is another");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Kind> kinds = make_kinds();
  fuzz::Bytes bytes(data, size);
  const Kind& kind = bytes.one_of(kinds);
  const uint8_t flags = bytes.byte();
  const std::string text(bytes.rest());
  const model::Tokenizer& tokenizer = kind.tokenizer;
  const bool spm = kind.pre.empty();

  model::EncodeWork work;
  const std::vector<int32_t> ids = tokenizer.encode(text, {.work = &work});
  for (const int32_t id : ids) CHECK(tokenizer.is_valid(id), "an id that does not exist");
  if (!spm || text.find(kSpace) == std::string::npos)
    CHECK(tokenizer.decode(ids) == text, "another text came back from ", kind.pre);
  const auto length = static_cast<int64_t>(size) + 1;
  CHECK(work.merge_steps <= 3 * length && work.matches <= 8 * length,
        "work is not proportional: ", work.merge_steps, " and ", work.matches);

  const model::EncodeOptions special = {.parse_special = (flags & 1) != 0,
                                        .add_bos = (flags & 2) != 0,
                                        .sentinel = (flags & 4) != 0 ? "\x01" : ""};
  const std::vector<int32_t> more = tokenizer.encode(text, special);
  check_streaming(tokenizer, more,
                  {.whole_text = (flags & 8) != 0, .show_control = (flags & 16) != 0});
  return 0;
}
