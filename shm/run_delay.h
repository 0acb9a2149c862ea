// How long a thread has been ready to run while others had its CPU: /proc/thread-self/schedstat.
//
// A thread that sleeps does not wait for a CPU, so this tells a busy neighbour from idleness. Some
// systems do not say it (no scheduler statistics, a hidden /proc): then it is always 0.
#pragma once

#include <cstdint>

#include "shm/file.h"

namespace shm {

class RunDelay {
 public:
  RunDelay() = default;
  /// Of the calling thread.
  static RunDelay of_this_thread();

  /// Nanoseconds since the thread began. Any thread; one system call, allocates nothing.
  uint64_t read_ns() const;

 private:
  explicit RunDelay(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace shm
