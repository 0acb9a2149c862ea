// What a server tells about itself beside its state: its workers, how busy they are, and where
// their memory lies. Plain values and pure functions of them; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/messages.h"

namespace broker {

struct RankStatus {
  int rank = 0;
  int os_node = -1;       // -1: none, simulated
  int64_t pid = 0;        // 0: unknown
  std::string cpus = {};  // of its compute threads, "0-3"
  proto::Ready ready = {};
};

struct ServerStatus {
  std::string version = {};
  int64_t pid = 0;
  base::TimeNs started_at = 0, now = 0;
  uint64_t restarts = 0;                  // of the group, after it was ready
  int answers_live = 0, answers_max = 0;  // under way or waiting
  proto::StatsReply stats = {};           // as the leader told last
  std::vector<RankStatus> ranks = {};     // empty before all are ready
};

/// The answer to a question about the placement.
struct PlacementAnswer {
  uint64_t round = 0;                             // questions up to this one are answered
  std::vector<proto::PlacementReply> ranks = {};  // by rank
};

/// Bytes of a class that are in memory, and those on another node than `os_node`; without an
/// intended node (-1) nothing is misplaced.
struct Misplaced {
  uint64_t present = 0, elsewhere = 0;
  double percent() const;
};
Misplaced misplaced_in(const proto::PlacementClass& own, int os_node);
/// Over all classes.
Misplaced misplaced_in(const proto::PlacementReply& rank);

/// Whether only some pages were looked at.
bool is_sample(const proto::PlacementReply& rank);

}  // namespace broker
