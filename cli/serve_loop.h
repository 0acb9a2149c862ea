// The thread of `numoe serve` that runs the cluster: it starts the workers, moves requests between
// the gate and the broker, starts a lost group again, and ends on a signal when all is answered.
//
// A group that is lost is started again at once, after 1, 2, 4, … 30 s if the one before was lost
// soon after it was ready; clients wait meanwhile, their answers go on. One that hangs is lost,
// too. A group that never was ready is given up after a few attempts, at once if it says what is
// wrong. The first signal drains: nothing new is accepted, what runs may end within a bound. The
// second one ends at once. Thread rule: the main thread.
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
#include "cli/progress.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"

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

  /// Until the end; errors: the group is given up.
  base::Result<Ended> live(ClusterLoop& loop);
  void take_events(ClusterLoop& loop);
  void on_ready(ClusterLoop& loop);
  /// The group is lost: decides when it is started again. Error: never.
  base::Status on_loss(ClusterLoop& loop, const base::Error& error);
  base::Status start_when_down(ClusterLoop& loop);
  /// Looks at signals and at how far draining has come.
  Ended end();
  void update_status(const ClusterLoop& loop);
  void set_status();
  base::Status finish(Ended ended);

  ServeLoopOptions options_;
  const ServeLoopParts parts_;
  base::SteadyClock clock_;
  broker::Reception reception_;
  broker::GroupStatus status_;
  StatusWatch watch_;
  Progress progress_;
  bool ready_ = false;      // the group that there is now
  bool was_ready_ = false;  // any
  base::TimeNs ready_at_ = 0, lost_at_ = 0, start_at_ = 0;
  int failures_ = 0;   // starts in a row that did not become ready
  int losses_ = 0;     // in a row, each soon after the start before it
  bool told_ = false;  // why the group was lost
  std::optional<base::TimeNs> drained_by_;
};

}  // namespace cli
