// What `serve` tells about itself: keeps the gate's answers to GET /status and GET /placement up to
// date, and says where memory lies when a group is ready for the first time.
//
// Asks the leaders for their figures about once a second while something runs, and all ranks for
// their placement when they are ready and when somebody wants to know. Thread rule: the loop's
// thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/gate.h"
#include "cli/served_group.h"

namespace cli {

struct StatusWatchParts {
  broker::Gate& gate;  // these outlive the watch
  base::Log& log;
  std::function<void(const std::string&)> print_table;  // gets the table when ready
};

class StatusWatch {
 public:
  StatusWatch(StatusWatchParts parts, broker::ServerStatus known)
      : parts_(std::move(parts)), server_(std::move(known)) {
    server_.now = server_.started_at;
    parts_.gate.set_server(server_);
  }

  /// They outlive the watch; at least one. Until then nobody is asked.
  void begin(std::vector<ServedGroup*> groups);
  void on_event(size_t group, const broker::Event& event);
  /// `live` are the answers under way in all groups.
  void step(base::TimeNs now, int live);

 private:
  struct Watched {
    ServedGroup* group = nullptr;
    bool was_ready = false;
    bool told = false;            // the table, once
    bool asks_placement = false;  // the workers are asked, and have not all answered
    bool is_in_round = false;     // for the question under way
    broker::GroupPlacement placement = {};
    std::vector<broker::RankStatus> ranks = {};
    base::TimeNs asked_stats_at = 0;
    bool was_busy = false;
  };

  /// Ranks as they are now, when the group is ready.
  void on_ready(size_t index);
  void ask_placement(Watched& watched);
  void tell_stats(Watched& watched, int rank, const proto::StatsReply& stats);
  void collect_ranks();
  void end_round_if_all_answered();
  void tell_placement(size_t index);
  std::string name_of(size_t index) const;

  const StatusWatchParts parts_;
  broker::ServerStatus server_;
  std::vector<Watched> groups_;
  std::optional<uint64_t> round_;  // of the question under way
};

}  // namespace cli
