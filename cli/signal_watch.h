// Signals that end the program, read like messages instead of interrupting it.
//
// While one exists, SIGINT, SIGTERM and, if not ignored, SIGHUP (end, please) and SIGCHLD (look at
// your children) are blocked and arrive on a descriptor; SIGPIPE is ignored, so that a reader that
// leaves is a failed write. Make it first in main, before any thread: threads inherit the mask.
// Thread rule: one thread.
#pragma once

#include <csignal>

#include "base/result.h"

namespace cli {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// Readable when a signal came.
  int descriptor() const { return descriptor_; }
  /// Takes what came. True once one of the ending ones has come.
  bool asked_to_end();
  /// The ending signal that came first, 0 if none.
  int ending_signal() const { return ending_signal_; }
  /// How many ending ones came.
  int ending_signals() const { return ending_signals_; }
  /// "interrupted by SIGINT"
  base::Error error() const;

  /// For a child between fork and exec: the signals are as before the watch.
  void restore_in_child() const;

 private:
  sigset_t before_;
  int descriptor_ = -1;
  int ending_signal_ = 0;
  int ending_signals_ = 0;
};

}  // namespace cli
