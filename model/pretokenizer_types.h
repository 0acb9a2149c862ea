// What the names in `tokenizer.ggml.pre` stand for.
//
// A GGUF file names its pre-tokenizer instead of holding its patterns. This table gives for each
// name the patterns of the tokenizer that the model was trained with, and two habits that have no
// key of their own. Nothing here is normalised (NFC): files do not say so and published
// vocabularies agree.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace model {

struct PretokenizerType {
  std::string_view name;
  std::span<const std::string_view> patterns;  // see model/pretokenizer.h
  bool whole_words_first = false;              // a piece that is a token is not built by merges
  bool adds_bos = false;                       // unless the file says otherwise
};

/// The type that `name` or one of its aliases names, upper or lower case; nullptr if unknown.
const PretokenizerType* find_pretokenizer_type(std::string_view name);

/// The one that a file without a name gets.
const PretokenizerType& default_pretokenizer_type();

/// All names and aliases, comma separated, for messages.
std::string known_pretokenizer_names();

}  // namespace model
