#include "cli/hosts_file.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "base/cat.h"
#include "base/limits.h"

namespace cli {

namespace {

using base::cat;

base::Error invalid(std::string text) {
  return {base::Code::kInvalidArgument, std::move(text)};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

class HostsParser {
 public:
  base::Result<std::vector<HostEntry>> parse(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      line_++;
      RETURN_IF_ERROR(take(trimmed(text.substr(0, end))));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    }
    RETURN_IF_ERROR(finish());
    if (hosts_.empty())
      return invalid("the hosts file names no host; a host begins with [host NAME]");
    return std::move(hosts_);
  }

 private:
  base::Error wrong(std::string what) const { return invalid(cat("line ", line_, ": ", what)); }

  base::Status take(std::string_view line) {
    if (line.empty() || line.front() == '#') return {};
    if (line.front() == '[') return begin(line);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos)
      return wrong(cat("'", line, "' is neither [host NAME] nor KEY = VALUE"));
    if (!entry_) return wrong("a host begins with [host NAME]");
    return set(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
  }

  base::Status begin(std::string_view line) {
    constexpr std::string_view kHead = "[host ";
    if (!line.starts_with(kHead) || line.back() != ']')
      return wrong(cat("'", line, "' is not [host NAME]"));
    RETURN_IF_ERROR(finish());
    entry_.emplace();
    entry_->name = trimmed(line.substr(kHead.size(), line.size() - kHead.size() - 1));
    if (entry_->name.empty()) return wrong("a host needs a name: [host NAME]");
    count_ = 1;
    began_ = line_;
    return {};
  }

  base::Status set(std::string_view key, std::string_view value) {
    if (key == "topology") {
      entry_->topology = value;
    } else if (key == "isa") {
      entry_->isa = value;
    } else if (key == "memory" || key == "bandwidth") {
      auto figures = parse_figures(key, value);
      if (!figures.ok()) return wrong(figures.error().message);
      (key == "memory" ? entry_->memory_gib : entry_->gb_per_s) = std::move(*figures);
    } else if (key == "link" || key == "round-trip" || key == "count") {
      const auto figures = parse_figures(key, value);
      if (!figures.ok()) return wrong(figures.error().message);
      if (figures->size() != 1) return wrong(cat(key, " takes one number"));
      const double number = figures->front();
      if (key == "link") entry_->link_gbit_per_s = number;
      if (key == "round-trip") entry_->round_trip_us = number;
      if (key == "count" && (number > base::kRanksMax || number != std::floor(number)))
        return wrong(cat("count is a whole number up to ", base::kRanksMax));
      if (key == "count") count_ = static_cast<int>(number);
    } else {
      return wrong(cat("'", key,
                       "' is none of topology, memory, bandwidth, link, round-trip, isa, "
                       "count"));
    }
    return {};
  }

  base::Status finish() {
    if (!entry_) return {};
    if (entry_->topology.empty())
      return invalid(cat("line ", began_, ": host ", entry_->name, " has no topology"));
    for (int i = 0; i < count_; i++) {
      hosts_.push_back(*entry_);
      if (count_ > 1) hosts_.back().name += cat("-", i + 1);
    }
    if (hosts_.size() > base::kRanksMax)
      return invalid(cat("a plan has at most ", base::kRanksMax, " hosts"));
    entry_.reset();
    return {};
  }

  int line_ = 0, began_ = 0, count_ = 1;
  std::optional<HostEntry> entry_;
  std::vector<HostEntry> hosts_;
};

}  // namespace

base::Result<std::vector<double>> parse_figures(std::string_view what, std::string_view text) {
  std::vector<double> figures;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view one = trimmed(text.substr(0, comma));
    double number = 0;
    const auto [end, error] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (error != std::errc() || end != one.data() + one.size() || !std::isfinite(number) ||
        number <= 0 || number > 1e9)
      return invalid(cat(what, ": '", one,
                         "' is not a number above 0; it takes one for all nodes, "
                         "or one for each, as in 300,280"));
    figures.push_back(number);
    if (comma == std::string_view::npos) return figures;
    text.remove_prefix(comma + 1);
  }
}

base::Result<std::vector<HostEntry>> parse_hosts(std::string_view text) {
  return HostsParser().parse(text);
}

}  // namespace cli
