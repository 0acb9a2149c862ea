// The thread of `numoe serve` that runs the cluster: it starts the workers, moves requests between
// the gate and the broker, starts a lost group again, and ends on a signal when all is answered.
//
// The first signal drains: nothing new is accepted, what runs may end within a bound. The second
// one ends at once. A group that was ready once is started again for ever, after 1, 2, 4, … 30 s;
// one that never was gives up, at once if it says what is wrong, else after a few attempts. Thread
// rule: the main thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "broker/gate.h"
#include "broker/http/server.h"
#include "broker/reception.h"
#include "cli/cluster_loop.h"
#include "cli/signal_watch.h"

namespace cli {

struct ServeLoopOptions {
  ClusterOptions cluster = {};
  int slots_max = 64;  // answers under way or waiting
  base::TimeNs drain_time = 30'000'000'000;
  std::string when_ready = {};  // said when requests are accepted for the first time
};

/// What outlives the loop.
struct ServeLoopParts {
  const worker::BackendFactory& factory;
  SignalWatch& signals;
  base::Log& log;
  broker::Gate& gate;
  broker::HttpServer& server;
};

class ServeLoop {
 public:
  ServeLoop(ServeLoopOptions options, ServeLoopParts parts);

  /// Returns after a signal: success if everything was answered or had its time, kCancelled if a
  /// second one cut it short. Errors: why there is no group.
  base::Status run();

 private:
  enum class Ended { kNo, kDrained, kCut };

  /// Until the group is lost, which is the error, or the end.
  base::Result<Ended> live(ClusterLoop& loop);
  /// The time without a group before the next attempt.
  Ended pause(base::TimeNs duration);
  /// Looks at signals and at how far draining has come.
  Ended end();
  void update_status(const ClusterLoop& loop);
  void set_status();
  bool gives_up(const base::Error& error, bool has_started) const;
  base::Status finish(Ended ended);

  ServeLoopOptions options_;
  const ServeLoopParts parts_;
  base::SteadyClock clock_;
  broker::Reception reception_;
  broker::GroupStatus status_;
  bool was_ready_ = false;  // ever
  int failures_ = 0;        // attempts in a row that were never ready
  std::optional<base::TimeNs> drained_by_;
};

}  // namespace cli
