#include "broker/http/api_keys.h"

#include <algorithm>
#include <cctype>

#include "base/cat.h"

namespace broker {

namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kScheme = "bearer ";

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool is_visible(char c) {
  return c > 0x20 && c < 0x7f;
}

}  // namespace

base::Result<ApiKeys> ApiKeys::from_text(std::string_view text) {
  ApiKeys keys;
  int line_number = 0;
  while (!text.empty()) {
    line_number++;
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    if (line.size() > kKeyBytesMax || !std::all_of(line.begin(), line.end(), is_visible))
      return base::Error{base::Code::kInvalidArgument,
                         base::cat("the API key in line ", line_number, " must be at most ",
                                   kKeyBytesMax, " visible ASCII characters without blanks")};
    Key& key = keys.keys_.emplace_back();
    std::copy(line.begin(), line.end(), key.begin());
  }
  if (keys.keys_.empty())
    return base::Error{base::Code::kInvalidArgument,
                       "the API key file has no key; put one on a line of its own"};
  return keys;
}

bool ApiKeys::allow(std::string_view authorization) const {
  if (!required()) return true;
  const bool has_scheme =
      authorization.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                 [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  const std::string_view sent =
      has_scheme ? trim(authorization.substr(kScheme.size())) : std::string_view();
  Key candidate{};
  std::copy_n(sent.begin(), std::min(sent.size(), candidate.size()), candidate.begin());
  // No branch depends on how much of a key is right, or on which one it is.
  unsigned allowed = 0;
  for (const Key& key : keys_) {
    unsigned char different = 0;
    for (size_t i = 0; i < key.size(); i++)
      different |= static_cast<unsigned char>(key[i] ^ candidate[i]);
    allowed |= different == 0 ? 1u : 0u;
  }
  return allowed != 0 && !sent.empty() && sent.size() <= kKeyBytesMax;
}

}  // namespace broker
