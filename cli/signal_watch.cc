#include "cli/signal_watch.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cat.h"
#include "base/check.h"

namespace cli {

SignalWatch::SignalWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&watched, number);
  // nohup ignores it, and a blocked signal would be queued all the same.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
    sigaddset(&watched, SIGHUP);
  CHECK(pthread_sigmask(SIG_BLOCK, &watched, &before_) == 0, "blocking signals");
  descriptor_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  CHECK(descriptor_ >= 0, "signalfd");
  signal(SIGPIPE, SIG_IGN);
}

SignalWatch::~SignalWatch() {
  close(descriptor_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  signal(SIGPIPE, SIG_DFL);
}

bool SignalWatch::asked_to_end() {
  signalfd_siginfo came;
  while (read(descriptor_, &came, sizeof came) == static_cast<ssize_t>(sizeof came))
    if (came.ssi_signo != SIGCHLD) {
      ending_signals_++;
      if (ending_signal_ == 0) ending_signal_ = static_cast<int>(came.ssi_signo);
    }
  return ending_signal_ != 0;
}

base::Error SignalWatch::error() const {
  const char* name = ending_signal_ == SIGINT    ? "SIGINT"
                     : ending_signal_ == SIGTERM ? "SIGTERM"
                                                 : "SIGHUP";
  return {base::Code::kCancelled, base::cat("interrupted by ", name)};
}

void SignalWatch::restore_in_child() const {
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace cli
