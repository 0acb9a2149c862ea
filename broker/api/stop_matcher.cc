#include "broker/api/stop_matcher.h"

#include <algorithm>

namespace broker {

namespace {

enum class At { kNothing, kBeginning, kStop };

/// What stands at the beginning of `text`: a stop, one that the text's end cuts off, or none.
At look(const std::vector<std::string>& stops, std::string_view text) {
  At found = At::kNothing;
  for (const std::string& stop : stops) {
    if (stop[0] != text[0]) continue;
    if (text.starts_with(stop)) return At::kStop;
    if (std::string_view(stop).starts_with(text)) found = At::kBeginning;
  }
  return found;
}

}  // namespace

std::string StopMatcher::push(std::string_view piece) {
  if (matched_) return {};
  if (stops_.empty()) return std::string(piece);
  held_ += piece;
  size_t certain = 0;
  At found = At::kNothing;
  while (certain < held_.size()) {
    found = look(stops_, std::string_view(held_).substr(certain));
    if (found != At::kNothing) break;
    certain++;
  }
  std::string text = held_.substr(0, certain);
  matched_ = found == At::kStop;
  if (matched_)
    held_.clear();
  else
    held_.erase(0, certain);
  return text;
}

std::string StopMatcher::finish() {
  size_t end = held_.size();
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  matched_ = matched_ || end < held_.size();
  std::string text = held_.substr(0, end);
  held_.clear();
  return text;
}

}  // namespace broker
