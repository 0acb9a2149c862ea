#include "model/detokenizer.h"

#include "model/utf8.h"

namespace model {

std::string Utf8Repair::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = decode_utf8(rest);
    if (step.state == Utf8State::kIncomplete) break;
    const auto length = static_cast<size_t>(step.length);
    out += step.state == Utf8State::kValid ? rest.substr(0, length) : kReplacementCharacter;
    rest.remove_prefix(length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string Utf8Repair::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacementCharacter);
}

std::string StreamingDetokenizer::push(int32_t id) {
  const std::string_view text = tokenizer_.text_of(id, at_start_);
  // What text_of() leaves out has a name.
  const bool hidden = tokenizer_.is_valid(id) && !tokenizer_.is_text(id);
  return repair_.push(hidden && options_.show_control ? tokenizer_.piece(id) : text);
}

std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                       DetokenizerOptions options) {
  StreamingDetokenizer stream(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text += stream.finish();
}

}  // namespace model
