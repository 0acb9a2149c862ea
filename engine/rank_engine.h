// One rank that is ready to run steps: its threads, buffers, weights and KV pool; and the two roles
// a rank can have in its group.
//
//   leader:   Step -> encode -> step feed -> own threads --gathers--> logits
//   follower:                   step feed -> own threads --gathers-->
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/step_feed.h"
#include "engine/pass.h"
#include "engine/roster.h"
#include "engine/step.h"
#include "engine/step_stats.h"
#include "engine/team.h"
#include "shm/run_delay.h"

namespace engine {

struct RankEngineOptions {
  const model::Model* model = nullptr;  // outlives the engine, as does all that is pointed to
  plan::Plan plan;
  int rank = 0;
  const kernels::Ops* ops = nullptr;
  const WeightMap* weight_map = nullptr;
  const std::byte* weights = nullptr;  // [weight_map->bytes], loaded
  kernels::KvType kv_type = kernels::KvType::kF16;
  std::byte* kv_memory = nullptr;  // [kv_pool_bytes()]
  RunnerShape shape;
  std::vector<int> cpus;  // one thread each; -1 leaves a thread unpinned
  /// So many of them at most take part in steps of one column a sequence, which read memory more
  /// than they compute; 0: all.
  int decode_threads = 0;
  base::Exchange* exchange = nullptr;
  uint64_t first_gather = 0;        // sequence number of the group's first gather
  int32_t* expert_trace = nullptr;  // see RankOptions
  /// How long thread t has ever been without a CPU while it had work, in ns; empty: as the system
  /// says. By it threads are left out of steps (roster.h).
  std::function<uint64_t(int)> run_delay = {};
  RosterOptions roster = {};
  bool oversubscribed = false;  // ranks share CPUs: sleep soon instead of spinning
};

/// Bytes of the KV pool of one rank.
size_t kv_pool_bytes(const model::ModelSpec& spec, const plan::RankShare& share,
                     kernels::KvType type, KvCounts counts);

class RankEngine {
 public:
  /// Starts the threads; each allocates its own scratch. Errors: a CPU that cannot be used.
  static base::Result<std::unique_ptr<RankEngine>> start(RankEngineOptions options);

  /// Runs one encoded step with all other ranks. The span of logits is filled on rank 0 only.
  base::Result<StepOutput> run(std::span<const std::byte> record);

  const RunnerShape& shape() const { return options_.shape; }
  const base::Exchange& exchange() const { return *options_.exchange; }
  const StepStats& stats() const { return stats_; }
  /// [layers][experts] how often each was chosen since the start, in the layers that this rank
  /// computes; by columns whose router scores were finite. Between steps.
  std::vector<std::vector<uint64_t>> expert_use() const;
  /// Those of the threads that take part in the next step of many columns.
  std::span<const int> members() const { return roster_.members(); }

 private:
  explicit RankEngine(RankEngineOptions options);
  std::span<const int> members_of_step() const;
  void seat_members();
  void move_caller();
  void count(uint64_t step_ns);

  RankEngineOptions options_;
  Weights weights_;
  KvPool kv_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Rank> rank_;
  std::vector<std::unique_ptr<ThreadScratch>> scratch_;  // [threads]
  std::vector<base::Wait> waits_;                        // [threads] how each thread's step ended
  StepView view_;
  std::function<void(int)> job_;
  Roster roster_;
  int caller_cpu_ = -1;                    // where the thread that calls run() is pinned
  std::vector<shm::RunDelay> run_delays_;  // [threads]
  std::vector<uint64_t> delay_ns_;         // [threads] reused
  StepStats stats_;
};

/// Rank 0: shows every step to the followers and runs it.
class LeaderRunner final : public StepRunner {
 public:
  /// Both must outlive the runner. `feed` may be nullptr in a group of one.
  LeaderRunner(RankEngine& engine, base::StepFeed* feed);
  RunnerShape shape() const override { return engine_.shape(); }
  base::Result<StepOutput> run(const Step& step) override;

 private:
  RankEngine& engine_;
  base::StepFeed* feed_;
  std::vector<std::byte> record_;
  uint64_t next_sequence_ = 0;
};

/// Any other rank: runs what the leader shows.
class Follower {
 public:
  Follower(RankEngine& engine, base::StepFeed& feed);
  /// Runs the next step if it is shown within `slice_ns`. True if one was run. Errors: as
  /// StepRunner::run.
  base::Result<bool> run_one(base::TimeNs slice_ns);

 private:
  RankEngine& engine_;
  base::StepFeed& feed_;
  std::vector<std::byte> record_;
  uint64_t next_sequence_ = 0;
};

}  // namespace engine
