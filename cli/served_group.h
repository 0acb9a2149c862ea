// One group of a server: its cluster, started again when it is lost, and what is told of it.
//
// A group that is lost is started again at once, after 1, 2, 4, … 30 s if the one before was lost
// soon after it was ready; clients wait meanwhile, their answers go on. One that hangs is lost,
// too. A group that never was ready is given up after a few attempts, at once if it says what is
// wrong; but not where another one has answered. Thread rule: the main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "broker/report.h"
#include "cli/cluster_loop.h"

namespace cli {

/// Whether some group of the server was ready, ever.
enum class Others { kNone, kHaveAnswered };

class ServedGroup {
 public:
  /// `name` begins what is said of it, as in "replica 1: "; may be empty. `log` outlives it.
  ServedGroup(std::unique_ptr<ClusterLoop> loop, std::string name, base::Log& log)
      : loop_(std::move(loop)), name_(std::move(name)), log_(log) {}

  /// Moves it on after a wait. Error: it is given up, and says why.
  base::Status step(Others others);
  /// Of its broker since the last call.
  std::vector<broker::Event> take_events() { return std::exchange(events_, {}); }
  /// True once after it has become ready.
  bool take_ready() { return std::exchange(new_ready_, false); }

  ClusterLoop& loop() { return *loop_; }
  const ClusterLoop& loop() const { return *loop_; }
  /// As of the last step.
  const broker::GroupStatus& status() const { return status_; }

 private:
  void collect_events();
  void on_ready();
  /// The group is lost: decides when it is started again.
  base::Status on_loss(const base::Error& error, Others others);
  base::Status start_when_down(Others others);
  void update_status();

  const std::unique_ptr<ClusterLoop> loop_;
  const std::string name_;
  base::Log& log_;
  std::vector<broker::Event> events_;
  broker::GroupStatus status_;
  bool ready_ = false;      // the workers that there are now
  bool was_ready_ = false;  // any
  bool new_ready_ = false;
  base::TimeNs ready_at_ = 0, lost_at_ = 0, start_at_ = 0;
  int failures_ = 0;   // starts in a row that did not become ready
  int losses_ = 0;     // in a row, each soon after the start before it
  bool told_ = false;  // why it was lost
};

}  // namespace cli
