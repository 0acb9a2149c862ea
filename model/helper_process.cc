#include "model/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/cat.h"

namespace model {

namespace {

using Deadline = std::chrono::steady_clock::time_point;

base::Error system_error(std::string_view what, int error) {
  return {base::Code::kSystem, base::cat(what, ": ", std::strerror(error))};
}

/// Waits until the socket can be read or written.
base::Status wait_for(int socket, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return base::Error{base::Code::kTimeout, "the helper is too slow"};
    pollfd entry = {.fd = socket, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error("poll", errno);
  }
}

base::Status send_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return base::Error{base::Code::kPeerLost, "the helper ended"};
    }
  }
  return {};
}

/// Appends what there is, at least one byte.
base::Status receive_some(int socket, std::string& bytes, Deadline deadline) {
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = recv(socket, buffer, sizeof buffer, 0);
    if (count > 0) {
      bytes.append(buffer, static_cast<size_t>(count));
      return {};
    }
    if (count == 0) return base::Error{base::Code::kPeerLost, "the helper ended"};
    if (errno == EAGAIN) {
      RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    } else if (errno != EINTR) {
      return base::Error{base::Code::kPeerLost, "the helper ended"};
    }
  }
}

base::Result<std::string> receive_frame(int socket, Deadline deadline) {
  std::string bytes;
  size_t newline = std::string::npos;
  while (newline == std::string::npos) {
    RETURN_IF_ERROR(receive_some(socket, bytes, deadline));
    newline = bytes.find('\n');
  }
  size_t length = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + newline, length);
  if (error != std::errc() || end != bytes.data() + newline ||
      length > HelperProcess::kAnswerBytesMax) {
    return base::Error{base::Code::kNoSpace, "the helper's answer is too long"};
  }
  bytes.erase(0, newline + 1);
  while (bytes.size() < length) RETURN_IF_ERROR(receive_some(socket, bytes, deadline));
  if (bytes.size() > length) return base::Error{base::Code::kPeerLost, "the helper talks nonsense"};
  return bytes;
}

}  // namespace

base::Result<HelperProcess> HelperProcess::start(const std::vector<std::string>& command) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return system_error("socketpair", errno);
  }
  // Only our end must not block: both ends are descriptions of their own.
  fcntl(sockets[0], F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], 0);
  posix_spawn_file_actions_adddup2(&actions, sockets[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  // The child starts with default signals, whatever this thread blocks or ignores.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C.UTF-8";
  char* environment[] = {path, locale, nullptr};

  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(sockets[1]);
  if (error != 0) {
    close(sockets[0]);
    return system_error(base::cat("cannot start ", command[0]), error);
  }
  return HelperProcess(pid, sockets[0]);
}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::exchange(other.socket_, -1)) {}

HelperProcess& HelperProcess::operator=(HelperProcess&& other) noexcept {
  if (this != &other) {
    stop();
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::exchange(other.socket_, -1);
  }
  return *this;
}

base::Result<std::string> HelperProcess::ask(std::string_view frame,
                                             std::chrono::milliseconds limit) {
  if (pid_ < 0) return base::Error{base::Code::kPeerLost, "the helper ended"};
  const Deadline deadline = std::chrono::steady_clock::now() + limit;
  RETURN_IF_ERROR(send_all(socket_, base::cat(frame.size(), '\n'), deadline));
  RETURN_IF_ERROR(send_all(socket_, frame, deadline));
  return receive_frame(socket_, deadline);
}

int HelperProcess::stop() {
  int status = 0;
  if (pid_ >= 0) {
    // One that ended by itself is still there until it is waited for, so the number is its own.
    if (waitpid(pid_, &status, WNOHANG) == 0) {
      kill(pid_, SIGKILL);
      while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
    }
    close(socket_);
  }
  pid_ = -1;
  socket_ = -1;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace model
