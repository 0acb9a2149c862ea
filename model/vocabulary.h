// The tokens of a model as data: what each one spells, what kind it is, which of them are special.
//
// Read once from the metadata of a GGUF file. `pieces` holds the bytes that a token stands for in
// text: the byte alphabet of byte-level BPE and the U+2581 blanks of SentencePiece are undone here
// and known nowhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "model/metadata.h"

namespace model {

/// As numbered by `tokenizer.ggml.token_type`.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never comes out of ordinary text
  kUserDefined = 4,  // matched in any text before it is cut
  kUnused = 5,
  kByte = 6,
};

enum class VocabularyKind {
  kBytePairs,      // `gpt2`
  kSentencePiece,  // `llama`
};

struct SpellingHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
/// From the bytes of a token to something; looked up by string_view.
template <class T>
using SpellingMap = std::unordered_map<std::string, T, SpellingHash, std::equal_to<>>;

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kBytePairs;
  std::vector<std::string> pieces;    // [vocabulary] bytes in text
  std::vector<TokenType> types;       // [vocabulary]
  std::vector<float> scores;          // [vocabulary] if kSentencePiece, else empty
  std::vector<bool> ends_generation;  // [vocabulary]
  std::optional<int32_t> bos, eos, unknown;
  std::optional<bool> adds_bos;    // if the file says so
  bool adds_space_prefix = false;  // only with kSentencePiece

  int64_t size() const { return static_cast<int64_t>(pieces.size()); }
  TokenType type(int32_t id) const { return types[static_cast<size_t>(id)]; }
  std::string_view piece(int32_t id) const { return pieces[static_cast<size_t>(id)]; }
};

/// Errors: kUnsupported for another tokenizer model, kBrokenFile for lists that contradict each
/// other. An id of a special token outside the vocabulary is left out with a warning.
base::Result<Vocabulary> read_vocabulary(const Metadata& metadata, base::Log& log);

/// The bytes that `text` spells in the byte alphabet of GPT-2, in which each of the 256 bytes is
/// one printable character; nullopt if a character of `text` is not in it.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace model
