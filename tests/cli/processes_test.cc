// The parts a local cluster is made of: directories, child processes, signals.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/child_process.h"
#include "cli/run_directory.h"
#include "cli/signal_watch.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

class RunDirectories : public testing::Test {
 protected:
  RunDirectories() {
    char path[] = "/tmp/numoe-cli-test-XXXXXX";
    parent_ = ::mkdtemp(path);
  }
  ~RunDirectories() override { fs::remove_all(parent_); }

  std::string parent_;
};

TEST_F(RunDirectories, GoWithTheirObject) {
  std::string path;
  {
    const auto directory = RunDirectory::create(parent_);
    ASSERT_TRUE(directory.ok());
    path = directory->path();
    EXPECT_EQ(fs::path(path).parent_path(), parent_);
    EXPECT_EQ(path, parent_ + "/run-" + directory->id());
    struct stat status {};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    std::ofstream(path + "/file") << "x";
    fs::create_directory(path + "/more");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(RunDirectories, MovedOnesAreRemovedOnce) {
  auto first = RunDirectory::create(parent_);
  ASSERT_TRUE(first.ok());
  const RunDirectory second(std::move(*first));
  EXPECT_TRUE(fs::exists(second.path()));
}

TEST_F(RunDirectories, LeftoversGoAndLivingOnesStay) {
  const std::string leftover = parent_ + "/run-0123456789ab";
  const std::string other = parent_ + "/something-else";
  fs::create_directories(leftover + "/deep");
  fs::create_directory(other);
  const auto first = RunDirectory::create(parent_);
  const auto second = RunDirectory::create(parent_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first->path(), second->path());
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_TRUE(fs::exists(first->path()));
}

TEST_F(RunDirectories, ALinkIsNotFollowed) {
  const std::string precious = parent_ + "/precious";
  fs::create_directories(precious + "/data");
  fs::create_directory_symlink(precious, parent_ + "/run-0123456789ab");
  ASSERT_TRUE(RunDirectory::create(parent_).ok());
  EXPECT_TRUE(fs::exists(precious + "/data"));
}

TEST_F(RunDirectories, NoPlaceIsAnError) {
  const auto directory = RunDirectory::create(parent_ + "/nowhere");
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.error().message.find(parent_ + "/nowhere"), std::string::npos);
}

/// Waits until the child has ended.
Ending end_of(ChildProcess& child, SignalWatch& signals) {
  while (!child.ended()) {
    pollfd watched{signals.descriptor(), POLLIN, 0};
    ::poll(&watched, 1, 10'000);
    signals.asked_to_end();
  }
  return *child.ended();
}

TEST(ChildProcesses, SayHowTheyEnded) {
  SignalWatch signals;
  auto exits =
      ChildProcess::start({.program = "/bin/sh", .arguments = {"sh", "-c", "exit 3"}}, signals);
  ASSERT_TRUE(exits.ok());
  const Ending exited = end_of(*exits, signals);
  EXPECT_EQ(exited.exit_code, 3);
  EXPECT_EQ(exited.signal, 0);
  EXPECT_EQ(exited.text, "ended with exit code 3");
  auto killed =
      ChildProcess::start({.program = "/bin/sh", .arguments = {"sh", "-c", "kill -9 $$"}}, signals);
  const Ending ending = end_of(*killed, signals);
  EXPECT_EQ(ending.signal, SIGKILL);
  EXPECT_EQ(ending.text, "was killed by signal 9 (Killed)");
  auto missing = ChildProcess::start({.program = "/no/such/program", .arguments = {"x"}}, signals);
  EXPECT_EQ(end_of(*missing, signals).exit_code, 127);
}

TEST(ChildProcesses, AreKilledWithTheirObject) {
  SignalWatch signals;
  pid_t pid = 0;
  {
    auto child = ChildProcess::start(
        {.program = "/bin/sh", .arguments = {"sh", "-c", "while :; do sleep 1; done"}}, signals);
    ASSERT_TRUE(child.ok());
    EXPECT_FALSE(child->ended().has_value());
    pid = child->pid();
    const ChildProcess moved(std::move(*child));
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0) << "reaped";
}

TEST(ChildProcesses, HaveNoInputAndTheSignalsOfBefore) {
  SignalWatch signals;
  // cat ends at once; SIGTERM, blocked here, must end the shell.
  auto child = ChildProcess::start(
      {.program = "/bin/sh", .arguments = {"sh", "-c", "cat; kill -TERM $$; exit 5"}}, signals);
  EXPECT_EQ(end_of(*child, signals).signal, SIGTERM);
}

TEST(SignalWatches, TakeTheFirstEndingSignal) {
  SignalWatch signals;
  EXPECT_FALSE(signals.asked_to_end());
  ::kill(::getpid(), SIGCHLD);
  EXPECT_FALSE(signals.asked_to_end());
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(signals.asked_to_end());
  ::kill(::getpid(), SIGINT);
  EXPECT_TRUE(signals.asked_to_end());
  EXPECT_EQ(signals.ending_signal(), SIGTERM);
  EXPECT_EQ(signals.error().code, base::Code::kCancelled);
  EXPECT_EQ(signals.error().message, "interrupted by SIGTERM");
}

}  // namespace
}  // namespace cli
