#include "model/vocabulary.h"

#include <algorithm>
#include <charconv>

#include "base/cat.h"
#include "model/utf8.h"

namespace model {

namespace {

constexpr size_t kTokensMax = size_t{1} << 24;

// Names under which published vocabularies end a turn or a text. Files often name only one of them
// in `eos_token_id` while the model was trained to emit another.
constexpr std::string_view kEndNames[] = {
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "</s>",
    "<eos>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "_<EOT>",
    "< EOT >",
    "<|EOT|>",
    "<|eos|>",
    "<|eot|>",  // Llama 4, which also has
    "<|eom|>",
    "[e~[",  // MiniMax M2
    "<|END_OF_TURN_TOKEN|>",
    "<|endofresponse|>",  // dots.llm1
    "[EOS]",              // Kimi K2, which also has [EOT]
    "[EOT]",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
};

base::Error broken(std::string message) {
  return {base::Code::kBrokenFile, std::move(message)};
}

bool is_end_name(std::string_view piece) {
  return std::ranges::find(kEndNames, piece) != std::end(kEndNames);
}

/// GPT-2 shows bytes that print as themselves and moves the other 68 to U+0100 and above, in order.
bool shows_itself(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

std::optional<uint8_t> byte_of_character(char32_t code) {
  if (code < 0x100) {
    if (!shows_itself(code)) return std::nullopt;
    return static_cast<uint8_t>(code);
  }
  char32_t moved = 0x100;
  for (char32_t byte = 0; byte < 0x100; ++byte) {
    if (shows_itself(byte)) continue;
    if (moved++ == code) return static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

/// The byte of a token spelled "<0x41>".
std::optional<uint8_t> byte_of_hex_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || !name.ends_with(">")) return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(name.data() + 3, name.data() + 5, byte, 16);
  if (error != std::errc() || end != name.data() + 5) return std::nullopt;
  return byte;
}

base::Result<std::vector<TokenType>> read_types(const Metadata& metadata,
                                                const std::vector<std::string>& tokens) {
  const auto* numbers = metadata.integers("tokenizer.ggml.token_type");
  std::vector<TokenType> types(tokens.size(), TokenType::kNormal);
  if (numbers == nullptr) {
    // Without types nothing is special by itself, so well-known names have to do.
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (is_end_name(tokens[i]) || tokens[i] == "<s>") types[i] = TokenType::kControl;
      if (tokens[i] == "<unk>") types[i] = TokenType::kUnknown;
      if (byte_of_hex_name(tokens[i])) types[i] = TokenType::kByte;
    }
    return types;
  }
  if (numbers->size() != tokens.size()) {
    return broken(base::cat("tokenizer.ggml.token_type has ", numbers->size(), " entries for ",
                            tokens.size(), " tokens"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t number = (*numbers)[i];
    if (number >= 1 && number <= 6) types[i] = static_cast<TokenType>(number);
  }
  return types;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    out.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return out.append(text.substr(done));
}

/// Control and user-defined tokens are spelled as they are; so is what no rule applies to.
std::string piece_of(VocabularyKind kind, TokenType type, const std::string& token) {
  if (type == TokenType::kByte) {
    if (const auto byte = byte_of_hex_name(token)) return std::string(1, static_cast<char>(*byte));
  }
  const bool ordinary = type == TokenType::kNormal || type == TokenType::kUnused;
  if (!ordinary) return token;
  if (kind == VocabularyKind::kSentencePiece) return replace_all(token, "\xE2\x96\x81", " ");
  return bytes_of_alphabet(token).value_or(token);
}

/// nullopt if absent, or outside the vocabulary: some published files hold -1 for "none".
std::optional<int32_t> special_id(const Metadata& metadata, std::string_view name, int64_t size,
                                  base::Log& log) {
  const std::string key = base::cat("tokenizer.ggml.", name, "_token_id");
  if (metadata.find(key) == nullptr) return std::nullopt;
  const auto id = metadata.integer(key, 0, size - 1);
  if (!id.ok()) {
    log.warning(base::cat("ignoring a special token: ", id.error().message));
    return std::nullopt;
  }
  return static_cast<int32_t>(*id);
}

void mark_ends(const Metadata& metadata, base::Log& log, Vocabulary& vocabulary) {
  const int64_t size = vocabulary.size();
  vocabulary.ends_generation.assign(static_cast<size_t>(size), false);
  const auto mark = [&vocabulary](std::optional<int32_t> id) {
    if (id) vocabulary.ends_generation[static_cast<size_t>(*id)] = true;
  };
  std::optional<size_t> end, returns, calls;
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    if (vocabulary.types[i] != TokenType::kControl) continue;
    const std::string& piece = vocabulary.pieces[i];
    if (is_end_name(piece)) vocabulary.ends_generation[i] = true;
    if (piece == "<|end|>") end = i;
    if (piece == "<|return|>") returns = i;
    if (piece == "<|call|>") calls = i;
  }
  // Where all three exist (gpt-oss), <|end|> only closes one channel of an answer.
  if (end && returns && calls) vocabulary.ends_generation[*end] = false;
  mark(vocabulary.eos);
  mark(special_id(metadata, "eot", size, log));
  mark(special_id(metadata, "eom", size, log));
}

base::Status read_scores(const Metadata& metadata, Vocabulary& vocabulary) {
  const auto* numbers = metadata.numbers("tokenizer.ggml.scores");
  if (numbers == nullptr || numbers->size() != vocabulary.pieces.size()) {
    return broken(base::cat("tokenizer.ggml.scores needs one number for each of ",
                            vocabulary.pieces.size(), " tokens"));
  }
  vocabulary.scores.assign(numbers->begin(), numbers->end());
  return {};
}

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text);
    if (step.state != Utf8State::kValid) return std::nullopt;
    const auto byte = byte_of_character(step.code);
    if (!byte) return std::nullopt;
    bytes += static_cast<char>(*byte);
    text.remove_prefix(static_cast<size_t>(step.length));
  }
  return bytes;
}

base::Result<Vocabulary> read_vocabulary(const Metadata& metadata, base::Log& log) {
  Vocabulary vocabulary;
  ASSIGN_OR_RETURN(const std::string kind, metadata.string("tokenizer.ggml.model"));
  if (kind != "gpt2" && kind != "llama") {
    return base::Error{base::Code::kUnsupported,
                       base::cat("tokenizer.ggml.model is '", kind,
                                 "'; known are gpt2 (byte pairs) and llama (SentencePiece)")};
  }
  const bool sentence_piece = kind == "llama";
  vocabulary.kind = sentence_piece ? VocabularyKind::kSentencePiece : VocabularyKind::kBytePairs;
  const auto* tokens = metadata.strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty() || tokens->size() > kTokensMax) {
    return broken("tokenizer.ggml.tokens is not a list of 1 to 2^24 strings");
  }
  ASSIGN_OR_RETURN(vocabulary.types, read_types(metadata, *tokens));
  vocabulary.pieces.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    vocabulary.pieces.push_back(piece_of(vocabulary.kind, vocabulary.types[i], (*tokens)[i]));
  }
  if (sentence_piece) RETURN_IF_ERROR(read_scores(metadata, vocabulary));

  const int64_t size = vocabulary.size();
  vocabulary.bos = special_id(metadata, "bos", size, log);
  vocabulary.eos = special_id(metadata, "eos", size, log);
  vocabulary.unknown = special_id(metadata, "unknown", size, log);
  if (metadata.find("tokenizer.ggml.add_bos_token") != nullptr) {
    ASSIGN_OR_RETURN(vocabulary.adds_bos,
                     metadata.boolean_or("tokenizer.ggml.add_bos_token", false));
  }
  if (sentence_piece) {
    ASSIGN_OR_RETURN(vocabulary.adds_space_prefix,
                     metadata.boolean_or("tokenizer.ggml.add_space_prefix", true));
    const auto unknown = std::ranges::find(vocabulary.types, TokenType::kUnknown);
    if (!vocabulary.unknown && unknown != vocabulary.types.end()) {
      vocabulary.unknown = static_cast<int32_t>(unknown - vocabulary.types.begin());
    }
  }
  mark_ends(metadata, log, vocabulary);
  return vocabulary;
}

}  // namespace model
