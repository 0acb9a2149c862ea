#include "model/utf8.h"

namespace model {

namespace {

uint8_t byte_at(std::string_view text, size_t index) {
  return static_cast<uint8_t>(text[index]);
}

/// What may follow a lead byte: how many bytes, and the range of the first of them (later ones are
/// always 80 to BF). The narrow ranges exclude overlong forms, surrogates and values above 10FFFF.
struct Lead {
  int continuation_count = 0;
  uint8_t first_min = 0x80, first_max = 0xBF;
};

bool read_lead(uint8_t byte, Lead& lead) {
  if (byte < 0xC2 || byte > 0xF4) return false;
  if (byte < 0xE0) {
    lead.continuation_count = 1;
  } else if (byte < 0xF0) {
    lead.continuation_count = 2;
    if (byte == 0xE0) lead.first_min = 0xA0;
    if (byte == 0xED) lead.first_max = 0x9F;
  } else {
    lead.continuation_count = 3;
    if (byte == 0xF0) lead.first_min = 0x90;
    if (byte == 0xF4) lead.first_max = 0x8F;
  }
  return true;
}

}  // namespace

Utf8Step decode_utf8(std::string_view text) {
  const uint8_t first = byte_at(text, 0);
  if (first < 0x80) return {.state = Utf8State::kValid, .length = 1, .code = first};
  Lead lead;
  if (!read_lead(first, lead)) return {.state = Utf8State::kInvalid, .length = 1};
  char32_t code = first & (0x3Fu >> lead.continuation_count);
  for (int i = 1; i <= lead.continuation_count; ++i) {
    if (static_cast<size_t>(i) >= text.size()) {
      return {.state = Utf8State::kIncomplete, .length = i};
    }
    const uint8_t next = byte_at(text, static_cast<size_t>(i));
    const uint8_t min = i == 1 ? lead.first_min : uint8_t{0x80};
    const uint8_t max = i == 1 ? lead.first_max : uint8_t{0xBF};
    if (next < min || next > max) return {.state = Utf8State::kInvalid, .length = i};
    code = (code << 6) | (next & 0x3Fu);
  }
  return {.state = Utf8State::kValid, .length = lead.continuation_count + 1, .code = code};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (byte_at(text, position) < 0x80) {
      ++position;
      continue;
    }
    const Utf8Step step = decode_utf8(text.substr(position));
    if (step.state != Utf8State::kValid) break;
    position += static_cast<size_t>(step.length);
  }
  return position;
}

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

}  // namespace model
