// Token ids to text while they arrive: whole UTF-8 characters only.
//
// A token may hold a part of a character. Bytes wait until their character is whole; each invalid
// sequence becomes one U+FFFD (model/utf8.h says what a sequence is), and so does an unfinished
// tail at the end. The text therefore does not depend on how the tokens cut it: all that push()
// returned and then finish() equal detokenize() of all ids.
//
//   StreamingDetokenizer text(tokenizer, {});
//   while (…) send(text.push(id));
//   send(text.finish());
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace model {

/// Bytes to valid UTF-8, in parts.
class Utf8Repair {
 public:
  /// The characters that `bytes` completes.
  std::string push(std::string_view bytes);
  /// U+FFFD if a character was left unfinished. The object is as new after it.
  std::string finish();
  /// How many bytes wait for the rest of their character: 0 to 3.
  int pending_bytes() const { return static_cast<int>(pending_.size()); }

 private:
  std::string pending_;
};

struct DetokenizerOptions {
  /// The ids are a whole text rather than the continuation of one: the blank that encoding puts in
  /// front is taken away.
  bool whole_text = false;
  /// Control and unknown tokens appear by their names instead of not at all.
  bool show_control = false;
};

class StreamingDetokenizer {
 public:
  /// `tokenizer` must outlive this.
  StreamingDetokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
      : tokenizer_(tokenizer), options_(options), at_start_(options.whole_text) {}

  /// The text that is certain now. An id outside the vocabulary adds nothing.
  std::string push(int32_t id);
  std::string finish() { return repair_.finish(); }

 private:
  const Tokenizer& tokenizer_;
  DetokenizerOptions options_;
  bool at_start_;
  Utf8Repair repair_;
};

/// The text of `ids`, always valid UTF-8.
std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                       DetokenizerOptions options);

}  // namespace model
