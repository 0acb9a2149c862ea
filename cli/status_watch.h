// What `serve` tells about itself: keeps the gate's answers to GET /status and GET /placement up to
// date, and says where memory lies when the model is ready for the first time.
//
// Asks the leader for its figures about once a second while something runs, and all ranks for their
// placement when they are ready and when somebody wants to know. Thread rule: the loop's thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/gate.h"
#include "cli/cluster_loop.h"

namespace cli {

struct StatusWatchParts {
  broker::Gate& gate;  // these outlive the watch
  base::Log& log;
  std::function<void(const std::string&)> print_table;  // gets the table when ready
};

/// What the loop knows of its workers. REQUIRES: the group is ready.
std::vector<broker::RankStatus> rank_statuses(const ClusterLoop& loop);

class StatusWatch {
 public:
  StatusWatch(StatusWatchParts parts, broker::ServerStatus known)
      : parts_(std::move(parts)), server_(std::move(known)) {
    server_.now = server_.started_at;
    parts_.gate.set_server(server_);
  }

  /// Ranks as they are now, when the group is ready.
  void on_ready(std::vector<broker::RankStatus> ranks, broker::Broker& broker);
  void on_event(const broker::Event& event);
  /// `live` are the answers under way. `broker` is nullptr while there is no group.
  void step(broker::Broker* broker, base::TimeNs now, int live);

 private:
  void tell_placement(const std::vector<proto::PlacementReply>& ranks);

  const StatusWatchParts parts_;
  broker::ServerStatus server_;
  bool was_ready_ = false;
  bool told_ = false;            // the table, once
  bool asks_placement_ = false;  // the workers are asked, and have not all answered
  uint64_t round_ = 0;           // of the question under way, or answered
  base::TimeNs asked_stats_at_ = 0;
  bool was_busy_ = false;
};

}  // namespace cli
