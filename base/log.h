// Log lines for people: one line per event, passed down from main, never global.
#pragma once

#include <string_view>

namespace base {

enum class Level { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(Level level, std::string_view message) = 0;

  void debug(std::string_view message) { write(Level::kDebug, message); }
  void info(std::string_view message) { write(Level::kInfo, message); }
  void warning(std::string_view message) { write(Level::kWarning, message); }
  void error(std::string_view message) { write(Level::kError, message); }
};

/// Lines of at least `threshold` to stderr as "who: level: message"; one write(2) a line, so lines
/// of several processes do not mix. Any thread.
class StderrLog final : public Log {
 public:
  StderrLog(std::string_view who, Level threshold) : who_(who), threshold_(threshold) {}
  void write(Level level, std::string_view message) override;

 private:
  std::string_view who_;  // must outlive the log
  Level threshold_;
};

/// Drops everything.
class NullLog final : public Log {
 public:
  void write(Level, std::string_view) override {}
};

}  // namespace base
