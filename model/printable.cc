#include "model/printable.h"

#include "model/utf8.h"

namespace model {

namespace {

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

void append_json(std::string& out, std::string_view character, char32_t code) {
  constexpr char kHex[] = "0123456789abcdef";
  if (code == '"' || code == '\\') {
    out += '\\';
    out += character;
  } else if (code == '\n') {
    out += "\\n";
  } else if (is_control(code)) {
    out += "\\u00";
    out += kHex[code >> 4];
    out += kHex[code & 15];
  } else {
    out += character;
  }
}

}  // namespace

std::string printable(std::string_view text, size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text);
    const auto length = static_cast<size_t>(step.length);
    const bool shown = step.state == Utf8State::kValid && !is_control(step.code);
    const std::string_view character = shown ? text.substr(0, length) : "?";
    if (out.size() + character.size() > bytes_max) return out + "...";
    out += character;
    text.remove_prefix(length);
  }
  return out;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Step step = decode_utf8(text);
    const auto length = static_cast<size_t>(step.length);
    if (step.state == Utf8State::kValid) {
      append_json(out, text.substr(0, length), step.code);
    } else {
      out += kReplacementCharacter;
    }
    text.remove_prefix(length);
  }
  return out + '"';
}

}  // namespace model
