#include "base/log.h"

#include <unistd.h>

#include <string>

#include "base/cat.h"

namespace base {

namespace {

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarning: return "warning";
    case Level::kError: return "error";
  }
  return "?";
}

}  // namespace

void StderrLog::write(Level level, std::string_view message) {
  if (level < threshold_) return;
  const std::string line = cat(who_, ": ", level_name(level), ": ", message, "\n");
  // A log that cannot be written is not worth an error path.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace base
