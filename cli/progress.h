// How far something long has come: a bar on a terminal, plain lines elsewhere. Thread rule: one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace cli {

enum class ProgressStyle { kBar, kLines };

class Progress {
 public:
  /// `out` must outlive this; `what` is for example "loading".
  Progress(FILE* out, ProgressStyle style, std::string what)
      : out_(out), style_(style), what_(std::move(what)) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `unit` is "MB" for bytes, else what is counted; `note` goes behind the amount. Prints only
  /// when another percentage (of lines: ten percent) is reached.
  void update(uint64_t done, uint64_t total, const char* unit, const std::string& note = {});
  /// Clears the bar.
  void finish();

 private:
  FILE* const out_;
  const ProgressStyle style_;
  const std::string what_;
  int shown_percent_ = -1;
};

/// A bar if `out` is a terminal that can draw one.
ProgressStyle style_for(FILE* out);

}  // namespace cli
