// A whole group in one process: every rank is a thread with its own engine, over one mapping or
// over ZeroMQ.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/rank_engine.h"
#include "shm/local_group.h"
#include "tests/proto/zmq_ranks.h"

namespace engine {

struct LocalRanksOptions {
  int ranks = 1;
  int threads = 1;
  int decode_threads = 0;  // of RankEngineOptions
  std::string isa = "auto";
  kernels::KvType kv_type = kernels::KvType::kF16;
  int64_t context = 256;
  int columns_max = 128;
  int32_t kv_blocks = 64;
  int32_t near_blocks = 0;  // see RunnerShape
  int64_t near_span = 0;
  std::string exchange = "shm";            // or zmq
  std::function<uint64_t(int)> run_delay = {};  // of RankEngineOptions
  // Nobody is left out because this machine is busy.
  RosterOptions roster = {.window_ns = std::numeric_limits<uint64_t>::max()};
  std::vector<std::byte*> kv_memory = {};  // [ranks] of the pools, outlives them; empty: their own
  // How the plan is made, as in plan::SplitOptions.
  plan::Strategy strategy = plan::Strategy::kRows;
  int stages = 0;
  std::vector<double> shares = {};
  std::vector<std::vector<double>> expert_use = {};
};

/// What a run over some tokens gave.
struct Logits {
  std::vector<std::vector<float>> positions;               // [tokens][vocabulary]
  std::vector<std::vector<std::vector<int32_t>>> experts;  // [layers][tokens][used]
  std::vector<int32_t> fault_layer;                        // [tokens]
  const std::vector<float>& last() const { return positions.back(); }
};

class LocalRanks {
 public:
  /// Loads the model into every rank. A failure comes back as an error.
  static base::Result<std::unique_ptr<LocalRanks>> start(const model::Model& model,
                                                         const LocalRanksOptions& options);
  ~LocalRanks();

  StepRunner& runner() { return *runner_; }
  const RunnerShape& shape() const { return shape_; }
  RankEngine& leader() { return *ranks_[0]->engine; }

  /// Logits of all positions of one sequence, `chunk` tokens a step (0: as many as fit), in the KV
  /// blocks from `first_block` on, starting at position `first` (earlier ones are in the cache).
  base::Result<Logits> forward(const std::vector<int32_t>& tokens, int chunk = 0,
                               int32_t first_block = 0, int64_t first = 0);

 private:
  struct LocalRank {
    WeightMap map;
    Buffer<std::byte> weights, kv;
    std::unique_ptr<RankEngine> engine;
    std::thread thread;  // followers
  };
  explicit LocalRanks(const model::Model& model) : model_(model) {}
  base::Status meet(const plan::Plan& plan, const LocalRanksOptions& options);
  base::Exchange& exchange(int rank);
  base::StepFeed& feed(int rank);
  base::Status start_rank(int rank, const kernels::Ops& ops, const plan::Plan& plan,
                          const LocalRanksOptions& options);

  const model::Model& model_;
  std::unique_ptr<shm::LocalGroup> group_;
  proto::SocketDirectory sockets_;
  std::vector<std::unique_ptr<proto::ZmqGroup>> zmq_groups_;  // [ranks] instead of group_
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  // Each rank writes about the layers it takes part in: [layers][columns_max][kExpertsUsedMax].
  std::vector<std::vector<int32_t>> expert_traces_;  // [ranks]
  plan::Plan plan_;
  RunnerShape shape_;
  std::unique_ptr<LeaderRunner> runner_;
  std::atomic<bool> stop_{false};
};

}  // namespace engine
