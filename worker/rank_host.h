// One rank in one process: opens the model, plans, places weights and KV cache in shared memory on
// its node, meets the other ranks, and runs steps.
//
//   open()  model, plan, sizes; nothing is allocated yet   -> identity for the broker's hello
//   load()  meet the ranks, reserve, read own rows, pack, start threads
//   runner() (rank 0) or follow() (the others)
//
// Memory goes with the processes: names are removed as soon as everybody who needs them has mapped
// them, except those of weights that shall be found again. Thread rule: one thread, which becomes
// compute thread 0.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/rank_engine.h"
#include "proto/messages.h"
#include "shm/arena.h"
#include "shm/region.h"
#include "worker/rank_exchange.h"
#include "worker/rank_kv.h"
#include "worker/room.h"
#include "worker/weight_arena.h"
#include "worker/weight_names.h"

namespace worker {

struct RankHostOptions {
  std::string model_path;
  int rank = 0;
  int rank_count = 1;
  std::string group_id;         // the same for all ranks, never used twice
  std::string broker_endpoint;  // ranks meet beside it
  std::string arena_directory;  // of this group, exists
  std::string isa = "auto";
  std::optional<kernels::KvType> kv_type;  // default: f16, with `reference` f32
  int64_t context = 0;  // positions of one sequence; 0: what the model was trained on, at most 4096
  int sequences = 1;    // of full context that the KV pool holds
  int columns_max = 256;
  plan::Strategy strategy = plan::Strategy::kRows;
  int stages = 0;                   // of the layers, 0: one a rank
  std::vector<double> shares = {};  // of the work, by rank; empty: equal
  /// By which strategy experts balances the ranks: [layers][experts] how often each was chosen;
  /// empty: equally often. Where it comes from is only handed on to workers.
  std::vector<std::vector<double>> expert_use = {};
  std::string expert_use_path = {};
  int os_node = -1;                 // memory is bound to it; -1: where it is first touched
  std::vector<int> cpus = {-1};     // of the compute threads
  int decode_threads = 0;           // of them in steps that generate only, 0: all
  std::string exchange = "auto";    // with the other ranks: auto, shm or zmq
  bool oversubscribed = false;      // threads share CPUs: sleep soon instead of spinning
  bool named_kv = false;            // the KV cache stays for the next process of this rank

  // Where the weights lie; worker/weight_arena.h says how they are found.
  std::string weights_directory;  // of this user's named arenas, exists; empty: none is looked for
  bool named_weights = false;     // what is loaded gets a name, for others and for the next start
  bool keep_weights = false;      // and stays when the last process that uses it has ended
  shm::HugePages huge_pages = shm::HugePages::kAuto;
  bool mlock = false;             // weights and KV cache are never swapped out
  bool strict_placement = false;  // memory that cannot be bound to its node is an error
};

/// How these options split a model.
plan::SplitOptions split_options(const RankHostOptions& options);

/// What a rank holds and how it fares; for people.
struct RankReport {
  uint64_t weight_bytes = 0, kv_bytes = 0;
  uint64_t huge_page_bytes = 0;           // of the weights
  uint64_t attached_bytes = 0;            // of the weights, found loaded
  shm::Hash128 content;                   // this rank's share of the model's content
  shm::Bind bind = shm::Bind::kNotAsked;  // the worse of weights and KV cache
  std::string exchange;         // with the other ranks: shm or zmq; empty for a single rank
  std::string exchange_note;    // a warning for people; may be empty
  int32_t kv_blocks_found = 0;  // sealed by an earlier process; rank 0
  std::string kv_note;          // why the KV cache of an earlier process is not kept; may be empty
  engine::StepStats engine;
};

/// "bound to node 1", or why not and what helps. `node` is the one that was asked for.
std::string placement_text(shm::Bind bind, int node);

class RankHost {
 public:
  /// Errors: everything a model file or an option can have wrong.
  static base::Result<std::unique_ptr<RankHost>> open(RankHostOptions options);
  ~RankHost();

  const model::Model& model() const { return model_; }
  /// Equal for ranks that were started on the same model with the same plan and arithmetic.
  std::string fingerprint() const;
  const engine::RunnerShape& shape() const { return shape_; }

  /// `watch` gets bytes packed so far and in all, from this thread; may be empty. Errors: kNoSpace
  /// with the bytes needed and free, kPeerLost, kTimeout, kBrokenFile, and those of the watch.
  base::Status load(const LoadWatch& watch);

  /// REQUIRES: load() succeeded, rank 0.
  engine::StepRunner& runner() { return *leader_; }
  /// Runs the next step if one comes within `slice_ns`; true if one was run. REQUIRES: load()
  /// succeeded, not rank 0. Errors: the group has ended.
  base::Result<bool> follow(base::TimeNs slice_ns) { return follower_->run_one(slice_ns); }

  /// What the KV cache holds beyond the life of sequences. REQUIRES: load() succeeded, rank 0.
  SealedBlocks* sealed_blocks() { return kv_->sealed(); }

  RankReport report() const;
  /// REQUIRES: load() succeeded, between steps.
  std::vector<proto::LayerUse> expert_use() const;
  /// REQUIRES: load() succeeded, between steps.
  proto::PlacementReply placement() const;

  /// What all ranks of the group will hold; borrows from this object.
  GroupMemory memory() const { return {model_, plan_, *ops_, names_, kv_type_, shape_}; }
  /// Names of the arenas of all ranks of this model and plan start so.
  const std::string& weights_prefix() const { return names_.prefix; }
  /// Before a process ends for good: lets go of the weights, and removes them if nobody else uses
  /// them and they shall not stay. Nothing can be computed any more.
  void release_weights();

 private:
  explicit RankHost(RankHostOptions options) : options_(std::move(options)) {}
  RankExchangeOptions exchange_options() const;
  base::Status check_rope() const;
  base::Status acquire(const LoadWatch& watch);
  base::Result<shm::Hash128> load_into(shm::Arena& arena, const LoadWatch& watch);
  base::Status find_kv();
  /// An error if memory could not be bound and was to be.
  base::Status strict(shm::Bind bind, std::string_view what) const;
  shm::Bind weights_bind() const;
  bool leads() const { return options_.rank == 0; }

  const RankHostOptions options_;
  model::Model model_;
  const kernels::Ops* ops_ = nullptr;
  kernels::KvType kv_type_ = kernels::KvType::kF16;
  plan::Plan plan_;
  WeightNames names_;
  engine::WeightMap map_;
  engine::RunnerShape shape_;
  // In this order: the engine uses everything before it.
  std::unique_ptr<RankExchange> exchange_;
  std::optional<WeightArena> weights_;
  std::optional<RankKv> kv_;
  std::unique_ptr<engine::RankEngine> engine_;
  std::unique_ptr<engine::LeaderRunner> leader_;
  std::unique_ptr<engine::Follower> follower_;
};

}  // namespace worker
