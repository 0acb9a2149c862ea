// A child process that is spoken to in frames, with a deadline for every step.
//
// A frame is its length in ASCII digits, a newline, and that many bytes. The child has one socket
// as standard input and output, nothing else open, and almost no environment.
//
// Thread rule: one thread at a time. The process is killed with the object.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace model {

class HelperProcess {
 public:
  /// Starts `command`, of which the first entry is the path of the program. Errors: kSystem.
  static base::Result<HelperProcess> start(const std::vector<std::string>& command);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&& other) noexcept;
  ~HelperProcess() { stop(); }

  /// Sends a frame and waits for the answer's. Errors: kTimeout when `limit` passed, kPeerLost when
  /// the process ended, kNoSpace when the answer is longer than kAnswerBytesMax. After an error the
  /// process is of no further use.
  base::Result<std::string> ask(std::string_view frame, std::chrono::milliseconds limit);

  /// Kills the process if it runs and waits for its end. Returns the signal that ended it, 0 if
  /// none.
  int stop();

  pid_t pid() const { return pid_; }

  static constexpr size_t kAnswerBytesMax = size_t{1} << 28;

 private:
  HelperProcess(pid_t pid, int socket) : pid_(pid), socket_(socket) {}

  pid_t pid_ = -1;  // -1 once it was waited for
  int socket_ = -1;
};

}  // namespace model
