// A run of a program under test: its output while it comes, its children, how it ended.
//
// Each run has directories of its own for shared memory and sockets, so that what it leaves behind
// is seen. Thread rule: one thread.
#pragma once

#include <sys/types.h>
#include <string>
#include <string_view>
#include <vector>

namespace cluster {

/// Where a program keeps what must not be left behind.
class Places {
 public:
  Places();
  ~Places();
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  const std::string& arenas() const { return arenas_; }
  const std::string& sockets() const { return sockets_; }
  /// Everything below them that is not a directory which may stay; one line each.
  std::string leftovers() const;

 private:
  std::string arenas_, sockets_;
};

struct Launch {
  std::string program;
  std::vector<std::string> arguments;  // without the program's name
  std::string script = {};             // NUMOE_SCRIPT
  std::string input = {};              // all of standard input
  bool ignores_hangup = false;         // as under nohup
};

class Program {
 public:
  Program(const Places& places, const Launch& launch);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  /// Reads until standard output or error contains `text`; false if it ended, or after a minute.
  bool wait_for_output(std::string_view text);
  bool wait_for_error_output(std::string_view text);
  /// Reads to the end and reaps; the exit code, or -n if signal n ended it. -1000 after a minute.
  int wait();
  void signal(int number) const;
  /// Worker processes of this run, by rank; of a run that is being loaded perhaps not all.
  std::vector<pid_t> workers() const;
  /// Reads nothing any more: the next write of the program fails.
  void close_output();

  const std::string& output() const { return output_; }
  const std::string& error_output() const { return error_output_; }
  /// Lines of standard error that are errors.
  std::vector<std::string> errors() const;

 private:
  bool read_some();

  pid_t pid_ = -1;
  int output_fd_ = -1, error_fd_ = -1;
  std::string output_, error_output_;
};

/// Waits up to ten seconds for a process that is not our child to be gone.
bool is_gone(pid_t pid);

}  // namespace cluster
