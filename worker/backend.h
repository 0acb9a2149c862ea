// What a worker process needs of a rank: load, then either run steps or follow them.
//
// The seam between processes and maths: the real one is a RankHost, the tests of processes put a
// scripted one here. Thread rule: one thread, the one that called load().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/step.h"
#include "proto/messages.h"
#include "worker/rank_host.h"

namespace worker {

class Backend {
 public:
  virtual ~Backend() = default;

  /// Equal for ranks that would compute the same.
  virtual std::string fingerprint() const = 0;
  /// Ids below it have a piece and may be produced.
  virtual int32_t token_count() const = 0;
  virtual base::Status load(const LoadWatch& watch) = 0;

  // REQUIRES: load() succeeded.
  /// Rank 0.
  virtual engine::StepRunner& runner() = 0;
  /// Rank 0: what its KV cache holds beyond the life of sequences; nullptr: nothing.
  virtual SealedBlocks* sealed_blocks() { return nullptr; }
  /// Other ranks: runs the next step if one comes within `slice`. Errors: the group has ended.
  virtual base::Result<bool> follow(base::TimeNs slice) = 0;
  virtual RankReport report() const = 0;
  /// How often experts were chosen, as StatsReply has it.
  virtual std::vector<proto::LayerUse> expert_use() const { return {}; }
  /// Where the memory of this rank lies, looked up page by page.
  virtual proto::PlacementReply placement() const = 0;

  /// Whether the memory of all ranks fits, asked before any is started. A warning for people, or
  /// nothing. Errors: kNoSpace with numbers; kInvalidArgument.
  virtual base::Result<std::string> check_room(const RoomQuestion& /*question*/) const {
    return std::string();
  }
  /// What all ranks have yet to reserve; for the question of another group.
  virtual std::vector<ArenaNeed> room_needs(const RoomQuestion& /*question*/) const { return {}; }
  /// Names of the weight arenas of all ranks start so; empty: there are none. Known before load().
  virtual std::string weights_prefix() const { return {}; }
  /// Before the process ends for good, with nobody left who could remove them: lets go of the
  /// weights and removes them if nobody else uses them and they shall not stay. Nothing can be
  /// computed any more.
  virtual void release_weights() {}
};

using BackendFactory =
    std::function<base::Result<std::unique_ptr<Backend>>(const RankHostOptions& options)>;

/// The real one. Nothing is allocated before load(). Errors: as RankHost::open.
base::Result<std::unique_ptr<Backend>> open_rank_host(const RankHostOptions& options);

}  // namespace worker
