// The thread of `numoe serve` that runs the groups: it starts their workers, moves requests between
// the gate and the router, and ends on a signal when all is answered.
//
// Each group is started again by itself when it is lost (cli/served_group.h); requests are refused
// only while none is ready. The first signal drains: nothing new is accepted, what runs may end
// within a bound. The second one ends at once. Thread rule: the main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "broker/gate.h"
#include "broker/http/server.h"
#include "broker/reception.h"
#include "broker/router.h"
#include "cli/cluster_loop.h"
#include "cli/progress.h"
#include "cli/served_group.h"
#include "cli/signal_watch.h"
#include "cli/status_watch.h"

namespace cli {

struct ServeLoopOptions {
  ClusterOptions cluster = {};              // of every group; its placement is not read
  std::vector<shm::Placement> groups = {};  // where the ranks of each go
  int slots_max = 64;                       // answers under way or waiting
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

  base::Status start_groups();
  /// Until the end; errors: the only group, or the last one, is given up.
  base::Result<Ended> live();
  base::Status step_groups();
  /// Looks at signals and at how far draining has come.
  Ended end();
  void update_status();
  base::Status finish(Ended ended);

  ServeLoopOptions options_;
  const ServeLoopParts parts_;
  base::SteadyClock clock_;
  broker::Reception reception_;
  // In this order: those after it use the groups.
  std::vector<std::unique_ptr<ServedGroup>> groups_;
  std::optional<broker::Router> router_;
  StatusWatch watch_;
  Progress progress_;
  bool was_ready_ = false;
  std::optional<base::TimeNs> drained_by_;
};

}  // namespace cli
