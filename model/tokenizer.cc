#include "model/tokenizer.h"

#include <algorithm>

#include "base/cat.h"
#include "base/check.h"
#include "model/bpe.h"
#include "model/pretokenizer_types.h"
#include "model/spm.h"
#include "model/utf8.h"

namespace model {

namespace {

constexpr std::string_view kPreKey = "tokenizer.ggml.pre";

base::Result<const PretokenizerType*> read_pretokenizer_type(const Metadata& metadata,
                                                             base::Log& log) {
  ASSIGN_OR_RETURN(const std::string name, metadata.string_or(kPreKey, "default"));
  if (name == "default") {
    // Files older than the key, or made for another engine.
    log.warning(
        base::cat("the file does not name its pre-tokenizer (", kPreKey,
                  "); splitting words like GPT-2, so numbers, contractions and scripts other than "
                  "Latin may get other tokens than the model was trained with"));
    return &default_pretokenizer_type();
  }
  const PretokenizerType* type = find_pretokenizer_type(name);
  if (type == nullptr) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("pre-tokenizer '", name, "' (", kPreKey,
                                 ") is not known; known are ", known_pretokenizer_names())};
  }
  return type;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), special_tokens_(vocabulary_) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

base::Result<Tokenizer> Tokenizer::create(const Metadata& metadata, base::Log* log) {
  CHECK(log != nullptr, "a tokenizer needs a log for its warnings");
  ASSIGN_OR_RETURN(Vocabulary vocabulary, read_vocabulary(metadata, *log));
  Tokenizer tokenizer(std::move(vocabulary));
  if (tokenizer.vocabulary_.kind == VocabularyKind::kSentencePiece) {
    tokenizer.spm_ = std::make_unique<Spm>(tokenizer.vocabulary_);
    tokenizer.adds_bos_ = true;
  } else {
    RETURN_IF_ERROR(tokenizer.set_up_byte_pairs(metadata, *log));
  }
  tokenizer.adds_bos_ = tokenizer.vocabulary_.adds_bos.value_or(tokenizer.adds_bos_);
  if (!tokenizer.vocabulary_.bos) tokenizer.adds_bos_ = false;
  return tokenizer;
}

base::Status Tokenizer::set_up_byte_pairs(const Metadata& metadata, base::Log& log) {
  ASSIGN_OR_RETURN(const PretokenizerType* type, read_pretokenizer_type(metadata, log));
  ASSIGN_OR_RETURN(Pretokenizer pretokenizer, Pretokenizer::create(type->patterns));
  ASSIGN_OR_RETURN(
      Bpe bpe, Bpe::create(metadata, vocabulary_, {.whole_words_first = type->whole_words_first}));
  pretokenizer_ = std::make_unique<Pretokenizer>(std::move(pretokenizer));
  bpe_ = std::make_unique<Bpe>(std::move(bpe));
  adds_bos_ = type->adds_bos;
  return {};
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  EncodeWork work;
  std::vector<int32_t> ids;
  const bool guarded = !options.sentinel.empty();
  const std::vector<Segment> segments =
      special_tokens_.split(text, {.control = options.parse_special, .guarded = guarded});
  const bool has_bos =
      !segments.empty() && vocabulary_.bos && segments[0].token == *vocabulary_.bos;
  if (options.add_bos && vocabulary_.bos && !has_bos) ids.push_back(*vocabulary_.bos);
  for (const Segment& segment : segments) {
    if (segment.token >= 0) {
      ids.push_back(segment.token);
      continue;
    }
    const std::string unguarded =
        guarded ? remove_sentinel(segment.text, options.sentinel) : std::string();
    const std::string_view ordinary = guarded ? unguarded : segment.text;
    if (ordinary.empty()) continue;
    if (bpe_ != nullptr) {
      encode_byte_pairs(ordinary, work, ids);
    } else if (vocabulary_.adds_space_prefix) {
      spm_->encode(base::cat(' ', ordinary), work, ids);
    } else {
      spm_->encode(ordinary, work, ids);
    }
  }
  if (options.work != nullptr) {
    options.work->matches += work.matches;
    options.work->matched_bytes += work.matched_bytes;
    options.work->merge_steps += work.merge_steps;
  }
  return ids;
}

void Tokenizer::encode_byte_pairs(std::string_view text, EncodeWork& work,
                                  std::vector<int32_t>& ids) const {
  BpeScratch scratch;
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    pieces.clear();
    pretokenizer_->split(text.substr(0, valid), pieces, work);
    for (const std::string_view piece : pieces) bpe_->encode(piece, scratch, work, ids);
    text.remove_prefix(valid);
    if (text.empty()) break;

    const std::string_view invalid = text.substr(0, static_cast<size_t>(decode_utf8(text).length));
    const bool has_tokens = std::ranges::all_of(
        invalid, [this](char c) { return bpe_->has_byte(static_cast<uint8_t>(c)); });
    if (has_tokens) {
      for (size_t i = 0; i < invalid.size(); ++i) {
        bpe_->encode(invalid.substr(i, 1), scratch, work, ids);
      }
    } else {
      bpe_->encode(kReplacementCharacter, scratch, work, ids);
    }
    text.remove_prefix(invalid.size());
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  bool at_start = true;
  for (const int32_t id : ids) text += text_of(id, at_start);
  return text;
}

std::string_view Tokenizer::text_of(int32_t id, bool& at_start) const {
  if (!is_valid(id)) return {};
  if (!is_text(id)) {
    at_start = true;
    return {};
  }
  std::string_view piece = vocabulary_.piece(id);
  const bool user_defined = is_user_defined(id);
  const bool invented = vocabulary_.adds_space_prefix && at_start && !user_defined;
  if (invented && piece.starts_with(' ')) piece.remove_prefix(1);
  at_start = user_defined;
  return piece;
}

bool Tokenizer::is_control(int32_t id) const {
  return is_valid(id) && vocabulary_.type(id) == TokenType::kControl;
}

bool Tokenizer::is_user_defined(int32_t id) const {
  return is_valid(id) && vocabulary_.type(id) == TokenType::kUserDefined;
}

bool Tokenizer::is_text(int32_t id) const {
  const TokenType type = vocabulary_.type(id);
  return type != TokenType::kControl && type != TokenType::kUnknown;
}

bool Tokenizer::ends_generation(int32_t id) const {
  return is_valid(id) && vocabulary_.ends_generation[static_cast<size_t>(id)];
}

}  // namespace model
