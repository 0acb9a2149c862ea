// A process of ours: started, watched, and never left behind.
//
// The kernel kills it when the thread that started it ends (so start it from the main thread),
// unless it is meant to outlive us; the destructor kills and reaps it in any case. One that another
// process started is adopted by its pid. Its standard input is empty, its output goes to our
// standard error. Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/signal_watch.h"
#include "shm/file.h"

namespace cli {

/// How a process ended.
struct Ending {
  int exit_code = 0;  // if signal is 0
  int signal = 0;     // that killed it
  std::string text;   // "was killed by signal 9 (Killed)", "ended with exit code 3"
};

enum class Life {
  kEndsWithUs,
  kOutlivesUs,  // in a session of its own: what a terminal sends does not reach it
};

struct ChildOptions {
  std::string program;                 // found without a search
  std::vector<std::string> arguments;  // [0] is its name
  Life life = Life::kEndsWithUs;
};

class ChildProcess {
 public:
  /// Errors: kSystem.
  static base::Result<ChildProcess> start(const ChildOptions& options, const SignalWatch& signals);
  /// Of another process. Whose pid it is must be checked after this: from here on it cannot become
  /// anybody else's. Errors: kSystem if there is no such process.
  static base::Result<ChildProcess> adopt(pid_t pid);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  /// Nothing while it runs.
  const std::optional<Ending>& ended();
  void kill();
  /// Readable when it has ended; -1 for one that we started, which SIGCHLD tells of.
  int descriptor() const { return handle_.fd(); }
  /// Lets it go: it is neither watched nor killed any more.
  void release() { pid_ = -1; }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  bool is_adopted() const { return handle_.is_open(); }

  pid_t pid_ = -1;  // -1 if moved from
  shm::File handle_;
  std::optional<Ending> ending_;
};

}  // namespace cli
