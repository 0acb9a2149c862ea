#include "shm/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string_view>
#include <utility>

namespace shm {

RunDelay RunDelay::of_this_thread() {
  return RunDelay(File(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)));
}

// "on the CPU" "waiting for it" "turns", in ns.
uint64_t RunDelay::read_ns() const {
  if (!file_.is_open()) return 0;
  char text[96];
  const ssize_t bytes = pread(file_.fd(), text, sizeof text, 0);
  if (bytes <= 0) return 0;
  const std::string_view line(text, static_cast<size_t>(bytes));
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return 0;
  uint64_t ns = 0;
  std::from_chars(line.data() + blank + 1, line.data() + line.size(), ns);
  return ns;
}

}  // namespace shm
