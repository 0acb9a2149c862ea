#include "cli/progress.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "base/cat.h"

namespace cli {

namespace {

constexpr int kBarWidth = 30;
constexpr int kLineEveryPercent = 10;

std::string amount(uint64_t done, uint64_t total, std::string_view unit) {
  if (unit != "MB") return base::cat(done, " of ", total, " ", unit);
  const auto megabytes = [](uint64_t bytes) { return (bytes + 50'000) / 100'000; };
  const auto text = [](uint64_t tenths) { return base::cat(tenths / 10, ".", tenths % 10); };
  return base::cat(text(megabytes(done)), " of ", text(megabytes(total)), " MB");
}

}  // namespace

ProgressStyle style_for(FILE* out) {
  const char* terminal = std::getenv("TERM");
  const bool draws =
      isatty(fileno(out)) != 0 && terminal != nullptr && std::string_view(terminal) != "dumb";
  return draws ? ProgressStyle::kBar : ProgressStyle::kLines;
}

void Progress::update(uint64_t done, uint64_t total, const char* unit, const std::string& note) {
  const int percent =
      total == 0 ? 100
                 : static_cast<int>(100 * (static_cast<double>(done) / static_cast<double>(total)));
  const bool lines = style_ == ProgressStyle::kLines;
  const int step = lines ? kLineEveryPercent : 1;
  // The bar starts empty; the first line comes with the first ten percent.
  const int shown = lines && shown_percent_ < 0 ? 0 : shown_percent_;
  if (shown >= 0 && percent / step == shown / step) return;
  shown_percent_ = percent;
  const std::string how_much =
      base::cat(percent, " % (", amount(done, total, unit), note.empty() ? "" : ", ", note, ")");
  std::string text;
  if (lines) {
    text = base::cat("numoe: ", what_, ": ", how_much, "\n");
  } else {
    const int filled = percent * kBarWidth / 100;
    text = base::cat("\r", what_, " [");
    for (int i = 0; i < kBarWidth; i++) text += i < filled ? '#' : ' ';
    text += base::cat("] ", how_much, "\x1b[K");
  }
  std::fputs(text.c_str(), out_);
  std::fflush(out_);
}

void Progress::finish() {
  if (style_ == ProgressStyle::kBar && shown_percent_ >= 0) {
    std::fputs("\r\x1b[K", out_);
    std::fflush(out_);
  }
  shown_percent_ = -1;
}

}  // namespace cli
