#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/cat.h"

namespace cli {

namespace {

struct Become {
  const char* program;
  char* const* arguments;
  pid_t parent;
  int empty;
  Life life;
};

/// Between fork and exec: only calls that are safe there. Ends in the program or with code 127.
[[noreturn]] void become(const Become& what, const SignalWatch& signals) {
  if (what.life == Life::kOutlivesUs) {
    setsid();
  } else {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the line above; nobody would tell us any more.
    if (getppid() != what.parent) _exit(127);
  }
  // Ctrl-C goes to every process of the terminal; ending is for the parent to order.
  signal(SIGINT, SIG_IGN);
  signals.restore_in_child();
  dup2(what.empty, STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  // Sockets of other threads may not have been marked yet; a client would wait for the child to
  // end.
  if (close_range(STDERR_FILENO + 1, ~0u, 0) != 0) {
    // An old kernel or a filter of system calls does not know it.
    const long descriptors = sysconf(_SC_OPEN_MAX);
    for (int descriptor = STDERR_FILENO + 1; descriptor < descriptors; descriptor++)
      close(descriptor);
  }
  execv(what.program, what.arguments);
  _exit(127);
}

Ending describe(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return {0, number, base::cat("was killed by signal ", number, " (", strsignal(number), ")")};
  }
  const int code = WEXITSTATUS(status);
  return {code, 0, base::cat("ended with exit code ", code)};
}

}  // namespace

base::Result<ChildProcess> ChildProcess::start(const ChildOptions& options,
                                               const SignalWatch& signals) {
  std::vector<std::string> texts = options.arguments;
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const int empty = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (empty < 0)
    return base::Error{base::Code::kSystem, base::cat("opening /dev/null: ", std::strerror(errno))};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0)
    become({.program = options.program.c_str(),
            .arguments = pointers.data(),
            .parent = parent,
            .empty = empty,
            .life = options.life},
           signals);
  const int error = errno;
  close(empty);
  if (pid < 0)
    return base::Error{base::Code::kSystem,
                       base::cat("starting a worker process: ", std::strerror(error))};
  return ChildProcess(pid);
}

base::Result<ChildProcess> ChildProcess::adopt(pid_t pid) {
  const auto handle = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (handle < 0)
    return base::Error{base::Code::kSystem,
                       base::cat("watching process ", pid, ": ", std::strerror(errno))};
  ChildProcess process(pid);
  process.handle_ = shm::File(handle);
  return process;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      handle_(std::move(other.handle_)),
      ending_(std::move(other.ending_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || ending_) return;
  kill();
  if (is_adopted()) {
    pollfd watched{handle_.fd(), POLLIN, 0};
    while (poll(&watched, 1, -1) < 0 && errno == EINTR) {
    }
    return;
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

const std::optional<Ending>& ChildProcess::ended() {
  if (ending_) return ending_;
  if (is_adopted()) {
    pollfd watched{handle_.fd(), POLLIN, 0};
    // How it ended is told to its parent only.
    if (poll(&watched, 1, 0) > 0) ending_ = {0, 0, "ended"};
    return ending_;
  }
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) ending_ = describe(status);
  return ending_;
}

void ChildProcess::kill() {
  if (ending_) return;
  if (is_adopted()) {
    syscall(SYS_pidfd_send_signal, handle_.fd(), SIGKILL, nullptr, 0);
  } else {
    ::kill(pid_, SIGKILL);
  }
}

}  // namespace cli
