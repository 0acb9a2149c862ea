// What a server tells about itself beside its state: its workers, how busy they are, and where
// their memory lies. Plain values and pure functions of them; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "broker/load_board.h"
#include "proto/messages.h"

namespace broker {

/// Of one group, or of all groups of a server as its clients see it.
struct GroupStatus {
  enum class State { kLoading, kReady, kRestarting, kDraining };
  State state = State::kLoading;
  uint64_t bytes_done = 0, bytes_total = 0;  // of loading; 0 of 0: not known yet
  int64_t context = 0, vocabulary = 0;       // once it was ready
  /// Why it is not ready, if something failed; if it is: that its workers have said nothing for a
  /// while. Requests are taken all the same, and go on when the workers do.
  std::string reason = {};
  int retry_seconds = 2;  // when asking again makes sense
  bool stalled = false;   // there is work, and the workers did not move for too long
  int groups = 1, groups_ready = 0;
};
/// Ready if one is; silent or stalled if all are. REQUIRES: at least one.
GroupStatus merged(std::span<const GroupStatus> groups);

/// Sums; the peak of blocks is the sum of peaks. Who owns an expert is told where all groups that
/// have counted its layer agree.
proto::StatsReply merged(std::span<const proto::StatsReply> groups);

struct RankStatus {
  int group = 0;
  int rank = 0;
  int os_node = -1;       // -1: none, simulated
  int64_t pid = 0;        // 0: unknown
  std::string cpus = {};  // of its compute threads, "0-3"
  proto::Ready ready = {};
  proto::StatsReply stats = {};  // as this rank told last
};

/// What is told of one of several groups beside what is told of all.
struct GroupReport {
  GroupStatus status = {};
  GroupLoad load = {};
  uint64_t restarts = 0;         // after it was ready
  proto::StatsReply stats = {};  // as its leader told last
};

struct ServerStatus {
  std::string version = {};
  int64_t pid = 0;
  base::TimeNs started_at = 0, now = 0;
  uint64_t restarts = 0;                  // of all groups, after they were ready
  int answers_live = 0, answers_max = 0;  // under way or waiting
  proto::StatsReply stats = {};           // of all groups
  std::vector<GroupReport> groups = {};
  std::vector<RankStatus> ranks = {};  // group by group, of those that were ready
};

/// Where the memory of a group lies, by rank.
using GroupPlacement = std::vector<proto::PlacementReply>;

/// The answer to a question about the placement.
struct PlacementAnswer {
  uint64_t round = 0;                       // questions up to this one are answered
  std::vector<GroupPlacement> groups = {};  // empty: not ready
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
