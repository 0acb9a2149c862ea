#include "tests/engine/local_ranks.h"

#include <algorithm>

#include "base/limits.h"
#include "worker/loader.h"

namespace engine {

base::Result<std::unique_ptr<LocalRanks>> LocalRanks::start(const model::Model& model,
                                                            const LocalRanksOptions& options) {
  std::unique_ptr<LocalRanks> local(new LocalRanks(model));
  ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops(options.isa));
  ASSIGN_OR_RETURN(plan::Plan plan, plan::split(model.spec, {.strategy = options.strategy,
                                                             .rank_count = options.ranks,
                                                             .shares = options.shares,
                                                             .stages = options.stages,
                                                             .expert_use = options.expert_use}));
  local->shape_ = {.vocabulary = model.spec.vocabulary,
                   .context = options.context,
                   .kv_block_count = options.kv_blocks,
                   .columns_max = options.columns_max,
                   .logit_columns_max = options.columns_max,
                   .kv_near_count = options.near_blocks,
                   .near_span = options.near_span};
  RETURN_IF_ERROR(local->meet(plan, options));
  const size_t trace =
      model.spec.blocks.size() * static_cast<size_t>(options.columns_max) * base::kExpertsUsedMax;
  local->expert_traces_.assign(static_cast<size_t>(options.ranks), std::vector<int32_t>(trace, -1));
  for (int r = 0; r < options.ranks; r++) {
    RETURN_IF_ERROR(local->start_rank(r, *ops, plan, options));
  }
  local->plan_ = std::move(plan);
  local->runner_ = std::make_unique<LeaderRunner>(*local->ranks_[0]->engine, &local->feed(0));
  return local;
}

base::Status LocalRanks::meet(const plan::Plan& plan, const LocalRanksOptions& options) {
  const size_t slice = slice_bytes_max(model_.spec, plan, options.columns_max);
  const size_t record = step_record_bytes_max(shape_);
  if (options.exchange == "zmq") {
    ASSIGN_OR_RETURN(zmq_groups_, proto::meet_in_threads(sockets_,
                                                         {.ranks = options.ranks,
                                                          .slice_bytes_max = slice,
                                                          .record_bytes_max = record},
                                                         options.threads));
    return {};
  }
  ASSIGN_OR_RETURN(
      group_,
      shm::LocalGroup::create(
          {.shape = {.ranks = options.ranks, .threads = options.threads, .slice_bytes_max = slice},
           .record_bytes_max = record}));
  return {};
}

base::Exchange& LocalRanks::exchange(int rank) {
  return group_ ? static_cast<base::Exchange&>(group_->exchange(rank))
                : zmq_groups_[static_cast<size_t>(rank)]->exchange();
}

base::StepFeed& LocalRanks::feed(int rank) {
  return group_ ? static_cast<base::StepFeed&>(group_->board(rank))
                : zmq_groups_[static_cast<size_t>(rank)]->feed();
}

namespace {

bool more_threads_than_cpus(const LocalRanksOptions& options) {
  return options.ranks * options.threads > static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

base::Status LocalRanks::start_rank(int rank, const kernels::Ops& ops, const plan::Plan& plan,
                                    const LocalRanksOptions& options) {
  ranks_.push_back(std::make_unique<LocalRank>());
  LocalRank& own = *ranks_.back();
  const plan::RankShare& share = plan.ranks[static_cast<size_t>(rank)];
  own.map = map_weights(model_, share, ops);
  own.weights = Buffer<std::byte>(own.map.bytes);
  std::byte* kv_memory = nullptr;
  if (options.kv_memory.empty()) {
    own.kv = Buffer<std::byte>(kv_pool_bytes(model_.spec, share, options.kv_type,
                                             {options.kv_blocks, options.near_blocks}));
    kv_memory = own.kv.data();
  } else {
    kv_memory = options.kv_memory[static_cast<size_t>(rank)];
  }
  const std::vector<int> cpus(static_cast<size_t>(options.threads), -1);
  ASSIGN_OR_RETURN(auto team, ThreadTeam::start({-1}));
  const worker::RankSlices slices{model_, plan, rank, own.map};
  const worker::LoadOptions load{.team = team.get(), .on_progress = {}};
  if (const auto loaded = worker::load_weights(slices, own.weights.data(), load); !loaded.ok()) {
    return loaded.error();
  }
  ASSIGN_OR_RETURN(
      own.engine,
      RankEngine::start({.model = &model_,
                         .plan = plan,
                         .rank = rank,
                         .ops = &ops,
                         .weight_map = &own.map,
                         .weights = own.weights.data(),
                         .kv_type = options.kv_type,
                         .kv_memory = kv_memory,
                         .shape = shape_,
                         .cpus = cpus,
                         .decode_threads = options.decode_threads,
                         .exchange = &exchange(rank),
                         .expert_trace = expert_traces_[static_cast<size_t>(rank)].data(),
                         .run_delay = options.run_delay,
                         .roster = options.roster,
                         .oversubscribed = more_threads_than_cpus(options)}));
  if (rank > 0) {
    own.thread = std::thread([this, &own, rank] {
      Follower follower(*own.engine, feed(rank));
      while (!stop_.load()) {
        if (!follower.run_one(10'000'000).ok()) return;
      }
    });
  }
  return {};
}

LocalRanks::~LocalRanks() {
  stop_.store(true);
  for (auto& rank : ranks_) {
    if (rank->thread.joinable()) rank->thread.join();
  }
}

base::Result<Logits> LocalRanks::forward(const std::vector<int32_t>& tokens, int chunk,
                                         int32_t first_block, int64_t first) {
  const int most = chunk > 0 ? std::min(chunk, shape_.columns_max) : shape_.columns_max;
  const auto end = first + static_cast<int64_t>(tokens.size());
  Step step;
  step.block_tables.emplace_back();
  for (int64_t b = 0; b * base::kKvBlockPositions < end; b++) {
    step.block_tables[0].push_back(first_block + static_cast<int32_t>(b));
  }
  Logits out;
  out.experts.resize(model_.spec.blocks.size());
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(most)) {
    const size_t count = std::min(tokens.size() - i, static_cast<size_t>(most));
    step.columns.clear();
    for (size_t c = 0; c < count; c++) {
      step.columns.push_back({.token = tokens[i + c],
                              .sequence = 0,
                              .position = first + static_cast<int64_t>(i + c),
                              .wants_logits = 1});
    }
    ASSIGN_OR_RETURN(const StepOutput output, runner_->run(step));
    const auto vocabulary = static_cast<size_t>(shape_.vocabulary);
    for (size_t c = 0; c < count; c++) {
      const float* row = output.logits.data() + c * vocabulary;
      out.positions.emplace_back(row, row + vocabulary);
      out.fault_layer.push_back(output.fault_layer[c]);
      for (size_t layer = 0; layer < out.experts.size(); layer++) {
        const auto& experts = model_.spec.blocks[layer].experts;
        const auto teller = static_cast<size_t>(plan_.members[layer].first());
        const int32_t* ids =
            expert_traces_[teller].data() +
            (layer * static_cast<size_t>(shape_.columns_max) + c) * base::kExpertsUsedMax;
        out.experts[layer].emplace_back(ids, ids + (experts ? experts->used : 0));
      }
    }
  }
  return out;
}

}  // namespace engine
