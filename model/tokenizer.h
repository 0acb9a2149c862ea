// Text to token ids and back, for the vocabulary of one model file.
//
// encode(): special tokens are found first, longest match first (user-defined ones always, control
// ones on request); what is between them goes through the pre-tokenizer and byte-pair merges, or
// through SentencePiece merges. Nothing is normalised. Every text has ids.
//
// Text that is not UTF-8 is no error either: its invalid bytes become byte tokens, one each, so
// they come back unchanged; they do not take part in patterns. If one of them has no token, the
// sequence is spelled as U+FFFD.
//
// decode(encode(x)) is x for all bytes, with two exceptions: bytes without a token (some published
// vocabularies lack control characters) become the unknown token or nothing, and U+2581 becomes the
// blank, as SentencePiece does not tell them apart.
//
// Any thread: nothing changes after create().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "model/metadata.h"
#include "model/pretokenizer.h"
#include "model/special_tokens.h"
#include "model/vocabulary.h"

namespace model {

class Bpe;
class Spm;

struct EncodeOptions {
  bool parse_special = false;  // text that spells a control token becomes that token
  /// Puts the beginning-of-sequence token in front, unless the text already begins with it under
  /// parse_special. Callers pass adds_bos() here. An end-of-sequence token is never added.
  bool add_bos = false;
  /// Not empty: literals of control tokens in data were broken with this (model/special_tokens.h);
  /// it is taken out of ordinary text after special tokens were found.
  std::string_view sentinel = {};
  EncodeWork* work = nullptr;  // steps are added here
};

class Tokenizer {
 public:
  /// Errors: kUnsupported (another tokenizer model or an unknown pre-tokenizer, with the known
  /// ones), kBrokenFile. Warnings go to `log`, which is not kept.
  static base::Result<Tokenizer> create(const Metadata& metadata, base::Log* log);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;

  /// The text of `ids`: control and unknown tokens left out, invalid UTF-8 kept. The blank that
  /// encode() puts in front (adds_space_prefix()) is taken away again.
  std::string decode(std::span<const int32_t> ids) const;

  /// The text that token `id` adds to what was decoded so far; `at_start` says whether a blank that
  /// encode() invented may come now, and is updated. Begin with true for a whole text.
  std::string_view text_of(int32_t id, bool& at_start) const;

  /// Bytes that a token stands for; the name of a control token. REQUIRES: is_valid(id).
  std::string_view piece(int32_t id) const { return vocabulary_.piece(id); }
  bool is_valid(int32_t id) const { return id >= 0 && id < size(); }
  bool is_control(int32_t id) const;
  bool is_user_defined(int32_t id) const;
  /// Whether `id` is text rather than a control or unknown token. REQUIRES: is_valid(id).
  bool is_text(int32_t id) const;
  /// Whether a model that emits `id` has finished its turn.
  bool ends_generation(int32_t id) const;

  std::optional<int32_t> bos() const { return vocabulary_.bos; }
  std::optional<int32_t> eos() const { return vocabulary_.eos; }
  /// Whether prompts begin with bos(): as the file says, else as its kind of vocabulary does.
  bool adds_bos() const { return adds_bos_; }
  /// Whether encode() puts a blank in front of text at the start and after special tokens.
  bool adds_space_prefix() const { return vocabulary_.adds_space_prefix; }
  int64_t size() const { return vocabulary_.size(); }

 private:
  explicit Tokenizer(Vocabulary vocabulary);
  base::Status set_up_byte_pairs(const Metadata& metadata, base::Log& log);
  void encode_byte_pairs(std::string_view text, EncodeWork& work, std::vector<int32_t>& ids) const;

  // Constant after construction.
  Vocabulary vocabulary_;
  SpecialTokens special_tokens_;
  bool adds_bos_ = false;
  std::unique_ptr<Pretokenizer> pretokenizer_;  // with bpe_
  std::unique_ptr<Bpe> bpe_;                    // either this
  std::unique_ptr<Spm> spm_;                    // or this
};

}  // namespace model
