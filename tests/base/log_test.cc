// The log writes to a file descriptor, so the test reads what arrives at the other end of a pipe.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace base {
namespace {

/// Sends the process's stderr into a packet pipe while it lives: one read yields one write. The
/// pipe holds 16; further writes are lost, not waited for.
class CapturedStderr {
 public:
  CapturedStderr() {
    saved_ = dup(STDERR_FILENO);
    EXPECT_EQ(pipe2(ends_, O_DIRECT | O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~CapturedStderr() {
    if (saved_ >= 0) restore();
    close(ends_[0]);
  }
  /// Everything written so far, one entry per write(2).
  std::vector<std::string> writes() {
    restore();  // closes the last writing end
    std::vector<std::string> all;
    char buffer[4096];
    ssize_t count;
    while ((count = read(ends_[0], buffer, sizeof buffer)) > 0)
      all.emplace_back(buffer, static_cast<size_t>(count));
    return all;
  }

 private:
  void restore() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    saved_ = -1;
  }

  int saved_ = -1;
  int ends_[2] = {-1, -1};
};

TEST(StderrLog, WritesEachLineAtOnce) {
  CapturedStderr captured;
  StderrLog log("worker 1", Level::kDebug);
  log.info("loaded 3 tensors");
  log.warning("/dev/shm has small pages");
  log.debug("");
  const auto writes = captured.writes();
  ASSERT_EQ(writes.size(), 3u);
  EXPECT_EQ(writes[0], "worker 1: info: loaded 3 tensors\n");
  EXPECT_EQ(writes[1], "worker 1: warning: /dev/shm has small pages\n");
  EXPECT_EQ(writes[2], "worker 1: debug: \n");
}

TEST(StderrLog, DropsWhatIsBelowTheThreshold) {
  CapturedStderr captured;
  StderrLog log("broker", Level::kWarning);
  log.debug("a");
  log.info("b");
  log.warning("c");
  log.error("d");
  const auto writes = captured.writes();
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0], "broker: warning: c\n");
  EXPECT_EQ(writes[1], "broker: error: d\n");
}

TEST(StderrLog, LinesOfTwoThreadsDoNotMix) {
  CapturedStderr captured;
  StderrLog log("w", Level::kInfo);
  const auto hundred = [&log](char letter) {
    for (int i = 0; i < 8; i++) log.info(std::string(100, letter));
  };
  std::thread a(hundred, 'a'), b(hundred, 'b');
  a.join();
  b.join();
  const auto writes = captured.writes();
  ASSERT_EQ(writes.size(), 16u);
  for (const std::string& line : writes)
    EXPECT_TRUE(line == "w: info: " + std::string(100, 'a') + "\n" ||
                line == "w: info: " + std::string(100, 'b') + "\n");
}

TEST(NullLog, WritesNothing) {
  CapturedStderr captured;
  NullLog log;
  log.error("lost");
  EXPECT_TRUE(captured.writes().empty());
}

}  // namespace
}  // namespace base
