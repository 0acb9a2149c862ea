// One step of a UTF-8 decoder that treats invalid input the way Unicode recommends.
//
// An invalid sequence ends where the first byte stands that cannot continue it ("substitution of
// maximal subparts", Unicode standard, section 3.9). So the number of replacement characters does
// not depend on where a stream was cut. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace model {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8State {
  kValid,
  kInvalid,     // a maximal subpart that no further byte can repair
  kIncomplete,  // the text ends inside what may become a character
};

struct Utf8Step {
  Utf8State state = Utf8State::kValid;
  int length = 0;     // bytes, 1 to 4
  char32_t code = 0;  // if valid
};

/// The first character of `text`. REQUIRES: text is not empty.
Utf8Step decode_utf8(std::string_view text);

/// Length of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

/// Appends the UTF-8 form. REQUIRES: a code point that is not a surrogate.
void append_utf8(char32_t code, std::string& out);

}  // namespace model
