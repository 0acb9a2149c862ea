#include "cli/input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/cat.h"

namespace cli {

namespace {

base::Result<std::string> read_to_end(int descriptor, const std::string& name,
                                      SignalWatch& signals) {
  std::string text;
  char bytes[1 << 16];
  while (true) {
    RETURN_IF_ERROR(wait_for_input(descriptor, signals));
    const ssize_t count = read(descriptor, bytes, sizeof bytes);
    if (count == 0) return text;
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      return base::Error{base::Code::kSystem,
                         base::cat("cannot read ", name, ": ", std::strerror(errno))};
  }
}

}  // namespace

base::Status wait_for_input(int descriptor, SignalWatch& signals) {
  while (true) {
    pollfd watched[] = {{descriptor, POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
    poll(watched, 2, -1);
    if (signals.asked_to_end()) return signals.error();
    // Also when it has ended or is no file at all, which the read will say.
    if (watched[0].revents != 0) return {};
  }
}

base::Result<std::string> read_stdin(SignalWatch& signals) {
  return read_to_end(STDIN_FILENO, "standard input", signals);
}

base::Result<std::string> read_file(const std::string& path, SignalWatch& signals) {
  // Without O_NONBLOCK the open itself would wait for the writer of a FIFO.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return base::Error{base::Code::kNotFound,
                       base::cat("cannot open ", path, ": ", std::strerror(errno))};
  auto text = read_to_end(descriptor, path, signals);
  close(descriptor);
  return text;
}

void open_standard_descriptors() {
  // open() takes the lowest number that is free.
  for (int number = 0; number <= STDERR_FILENO; number++)
    if (fcntl(number, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

}  // namespace cli
