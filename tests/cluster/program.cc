#include "tests/cluster/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

namespace cluster {

namespace {

namespace fs = std::filesystem;
constexpr auto kPatience = std::chrono::seconds(60);

std::string make_directory(std::string pattern) {
  return ::mkdtemp(pattern.data()) == nullptr ? std::string() : pattern;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Standard input as a file, so that nobody has to feed it.
int input_descriptor(const std::string& text) {
  char path[] = "/tmp/numoe-input-XXXXXX";
  const int descriptor = ::mkstemp(path);
  ::unlink(path);
  if (::write(descriptor, text.data(), text.size()) < 0) return -1;
  ::lseek(descriptor, 0, SEEK_SET);
  return descriptor;
}

}  // namespace

Places::Places()
    : arenas_(make_directory("/dev/shm/numoe-cluster-test-XXXXXX")),
      sockets_(make_directory("/tmp/numoe-cluster-test-XXXXXX")) {}

Places::~Places() {
  fs::remove_all(arenas_);
  fs::remove_all(sockets_);
}

std::string Places::leftovers() const {
  std::string lines;
  for (const std::string& place : {arenas_, sockets_})
    for (const auto& entry : fs::recursive_directory_iterator(place)) {
      // The directory of the user stays.
      if (entry.is_directory() && entry.path().filename().string().starts_with("numoe-")) continue;
      lines += entry.path().string() + "\n";
    }
  return lines;
}

Program::Program(const Places& places, const Launch& launch) {
  std::vector<std::string> texts = {launch.program};
  texts.insert(texts.end(), launch.arguments.begin(), launch.arguments.end());
  const std::string& command = launch.arguments.empty() ? launch.program : launch.arguments[0];
  if (command == "run" || command == "logits" || command == "perplexity")
    texts.push_back("--arena-dir=" + places.arenas());
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  int output[2], errors[2];
  if (::pipe(output) != 0 || ::pipe(errors) != 0) std::abort();
  const int input = input_descriptor(launch.input);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(input, STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    ::dup2(errors[1], STDERR_FILENO);
    for (const int descriptor : {input, output[0], output[1], errors[0], errors[1]})
      ::close(descriptor);
    ::setenv("XDG_RUNTIME_DIR", places.sockets().c_str(), 1);
    ::setenv("NUMOE_SCRIPT", launch.script.c_str(), 1);
    ::signal(SIGHUP, launch.ignores_hangup ? SIG_IGN : SIG_DFL);  // however we were started
    ::execv(arguments[0], arguments.data());
    ::_exit(126);
  }
  for (const int descriptor : {input, output[1], errors[1]}) ::close(descriptor);
  output_fd_ = output[0];
  error_fd_ = errors[0];
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_output();
  if (error_fd_ >= 0) ::close(error_fd_);
}

void Program::close_output() {
  if (output_fd_ >= 0) ::close(output_fd_);
  output_fd_ = -1;
}

bool Program::read_some() {
  pollfd watched[] = {{output_fd_, POLLIN, 0}, {error_fd_, POLLIN, 0}};
  if (output_fd_ < 0 && error_fd_ < 0) return false;
  if (::poll(watched, 2, 1000) < 0 && errno != EINTR) return false;
  const auto take = [](int& descriptor, const pollfd& polled, std::string& text) {
    if (descriptor < 0 || polled.revents == 0) return;
    char bytes[4096];
    const ssize_t count = ::read(descriptor, bytes, sizeof bytes);
    if (count > 0) {
      text.append(bytes, static_cast<size_t>(count));
    } else {
      ::close(descriptor);
      descriptor = -1;
    }
  };
  take(output_fd_, watched[0], output_);
  take(error_fd_, watched[1], error_output_);
  return true;
}

bool Program::wait_for_output(std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (output_.find(text) == std::string::npos)
    if (std::chrono::steady_clock::now() > end || !read_some()) return false;
  return true;
}

bool Program::wait_for_error_output(std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (error_output_.find(text) == std::string::npos)
    if (std::chrono::steady_clock::now() > end || !read_some()) return false;
  return true;
}

int Program::wait() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end && read_some()) {
  }
  // Both ends are closed, so it has ended or hangs in ending.
  for (int status = 0; std::chrono::steady_clock::now() < end;) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    std::this_thread::yield();
  }
  return -1000;
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

std::vector<pid_t> Program::workers() const {
  std::map<std::string, pid_t> by_rank;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), ::isdigit)) continue;
    // "PID (NAME) STATE PPID …"
    const std::string stat = read_file(entry.path() / "stat");
    const size_t after_name = stat.rfind(')');
    if (after_name == std::string::npos) continue;
    if (std::atoi(stat.c_str() + after_name + 4) != pid_) continue;
    const std::string command = read_file(entry.path() / "cmdline");
    const size_t rank = command.find("--rank=");
    if (rank == std::string::npos) continue;
    by_rank[command.c_str() + rank] = std::atoi(name.c_str());
  }
  std::vector<pid_t> pids;
  for (const auto& [rank, pid] : by_rank) pids.push_back(pid);
  return pids;
}

std::vector<std::string> Program::errors() const {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < error_output_.size();) {
    const size_t end = std::min(error_output_.find('\n', begin), error_output_.size());
    const std::string line = error_output_.substr(begin, end - begin);
    if (line.find("error: ") != std::string::npos) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

bool is_gone(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (::kill(pid, 0) == 0) {
    // A zombie whose new parent has not looked yet is gone as well.
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t after_name = stat.rfind(')');
    if (after_name != std::string::npos && stat[after_name + 2] == 'Z') return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace cluster
