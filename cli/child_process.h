// A process of ours: started, watched, and never left behind.
//
// The kernel kills it when the thread that started it ends (so start it from the main thread); the
// destructor kills and reaps it. Its standard input is empty, its output goes to our standard
// error. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/signal_watch.h"

namespace cli {

/// How a process ended.
struct Ending {
  int exit_code = 0;  // if signal is 0
  int signal = 0;     // that killed it
  std::string text;   // "was killed by signal 9 (Killed)", "ended with exit code 3"
};

class ChildProcess {
 public:
  /// `program` is found without a search; arguments[0] is its name. Errors: kSystem.
  static base::Result<ChildProcess> start(const std::string& program,
                                          const std::vector<std::string>& arguments,
                                          const SignalWatch& signals);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  /// Nothing while it runs.
  const std::optional<Ending>& ended();
  void kill();

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}

  pid_t pid_ = -1;  // -1 if moved from
  std::optional<Ending> ending_;
};

}  // namespace cli
