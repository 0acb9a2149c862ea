#include "worker/rank_host.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/cat.h"
#include "base/limits.h"
#include "shm/checksum.h"
#include "shm/pin.h"
#include "worker/loader.h"
#include "worker/near_blocks.h"
#include "worker/placement_report.h"

namespace worker {

namespace {

// What a context is by default, however long the model's own is: its cache is reserved at start.
constexpr int64_t kDefaultContextMax = 4096;
// Logits of one step are gathered into one buffer of at most this many bytes.
constexpr int64_t kLogitBytesMax = int64_t{64} << 20;
constexpr base::TimeNs kJoinTimeout = 60'000'000'000;

base::Result<engine::RunnerShape> shape_of(const model::ModelSpec& spec,
                                           const RankHostOptions& options) {
  const int64_t context =
      options.context > 0 ? options.context : std::min(spec.context, kDefaultContextMax);
  if (context > base::kContextMax) {
    return base::Error{base::Code::kInvalidArgument,
                       base::cat("--ctx ", context, " is beyond the limit of ", base::kContextMax)};
  }
  if (options.columns_max < 1 || options.columns_max > base::kStepColumnsMax) {
    return base::Error{
        base::Code::kInvalidArgument,
        base::cat("--chunk must be 1 to ", base::kStepColumnsMax, ", not ", options.columns_max)};
  }
  const int64_t blocks =
      (context + base::kKvBlockPositions - 1) / base::kKvBlockPositions * options.sequences;
  const int64_t logit_columns =
      kLogitBytesMax / (spec.vocabulary * static_cast<int64_t>(sizeof(float)));
  engine::RunnerShape shape{.vocabulary = spec.vocabulary,
                            .context = context,
                            .kv_block_count = static_cast<int32_t>(blocks),
                            .columns_max = options.columns_max,
                            .logit_columns_max = static_cast<int>(
                                std::clamp<int64_t>(logit_columns, 1, options.columns_max))};
  plan_near_pool(spec, options.sequences, shape);
  return shape;
}

}  // namespace

plan::SplitOptions split_options(const RankHostOptions& options) {
  return {.strategy = options.strategy,
          .rank_count = options.rank_count,
          .shares = options.shares,
          .stages = options.stages,
          .expert_use = options.strategy == plan::Strategy::kExperts
                            ? options.expert_use
                            : std::vector<std::vector<double>>()};
}

base::Result<std::unique_ptr<RankHost>> RankHost::open(RankHostOptions options) {
  std::unique_ptr<RankHost> host(new RankHost(std::move(options)));
  const RankHostOptions& o = host->options_;
  ASSIGN_OR_RETURN(host->ops_, kernels::find_ops(o.isa));
  ASSIGN_OR_RETURN(host->model_, model::load_model(o.model_path));
  ASSIGN_OR_RETURN(host->plan_, plan::split(host->model_.spec, split_options(o)));
  ASSIGN_OR_RETURN(host->shape_, shape_of(host->model_.spec, o));
  host->kv_type_ =
      o.kv_type.value_or(host->ops_->is_reference ? kernels::KvType::kF32 : kernels::KvType::kF16);
  host->map_ = engine::map_weights(host->model_, host->plan_.ranks[static_cast<size_t>(o.rank)],
                                   *host->ops_);
  host->names_ = weight_names(host->model_, host->plan_, *host->ops_);
  return host;
}

RankHost::~RankHost() = default;

std::string RankHost::fingerprint() const {
  std::string shares = base::cat("-", plan::strategy_name(options_.strategy), options_.stages);
  // Ranks with other rows cannot compute together.
  for (const double share : options_.shares) shares += base::cat("-", share);
  if (!split_options(options_).expert_use.empty()) {
    std::string use;
    for (const std::vector<double>& layer : options_.expert_use) {
      for (const double count : layer) use += base::cat(count, " ");
      use += '\n';
    }
    shares += base::cat("-", shm::hash64(std::as_bytes(std::span(use))));
  }
  return base::cat(model_fingerprint(model_), "-", ops_->is_reference ? "reference" : "packed", "-",
                   static_cast<uint32_t>(kv_type_), "-", shape_.context, "-", shape_.kv_block_count,
                   "-", shape_.columns_max, shares);
}

base::Status RankHost::load(const LoadWatch& given) {
  const LoadWatch watch = given ? given : [](uint64_t, uint64_t) { return base::Status(); };
  RETURN_IF_ERROR(find_kv());
  RankExchangeOptions meeting = exchange_options();
  meeting.keep_on = [&] { return watch(0, map_.bytes); };
  ASSIGN_OR_RETURN(exchange_, RankExchange::meet(meeting));
  if (!exchange_->keeps_kv()) kv_->discard();
  // From here on this thread runs on the rank's node: whoever reserves memory decides where it lies
  // if it cannot be bound.
  if (options_.cpus[0] >= 0) RETURN_IF_ERROR(shm::pin_thread(options_.cpus[0]));
  RETURN_IF_ERROR(exchange_->open());
  RETURN_IF_ERROR(acquire(watch));
  RETURN_IF_ERROR(check_rope());
  RETURN_IF_ERROR(kv_->open(exchange_->kv_stamp(), [&] { return watch(map_.bytes, map_.bytes); }));
  RETURN_IF_ERROR(strict(kv_->arena().bind(), "KV blocks"));
  if (options_.mlock) {
    // Without the right to it memory is as good, and the start of the group has said so.
    shm::lock_pages(weights_->arena.region().data(), weights_->arena.region().bytes());
    shm::lock_pages(kv_->data(), kv_->bytes());
  }
  ASSIGN_OR_RETURN(engine_, engine::RankEngine::start({.model = &model_,
                                                       .plan = plan_,
                                                       .rank = options_.rank,
                                                       .ops = ops_,
                                                       .weight_map = &map_,
                                                       .weights = weights_->arena.data(0),
                                                       .kv_type = kv_type_,
                                                       .kv_memory = kv_->data(),
                                                       .shape = shape_,
                                                       .cpus = options_.cpus,
                                                       .decode_threads = options_.decode_threads,
                                                       .exchange = &exchange_->exchange(),
                                                       .oversubscribed = options_.oversubscribed}));
  if (leads()) {
    leader_ = std::make_unique<engine::LeaderRunner>(*engine_, &exchange_->feed());
  } else {
    follower_ = std::make_unique<engine::Follower>(*engine_, exchange_->feed());
  }
  return {};
}

// Angles are exact up to 2^21 radians (kernels/math.h); the first pair turns by 1 / factor a
// position.
base::Status RankHost::check_rope() const {
  const float smallest =
      static_cast<float>(shape_.context) / static_cast<float>(kernels::kAngleMax);
  const auto fits = [&](float divisor) { return std::isfinite(divisor) && divisor >= smallest; };
  const auto error = [](std::string_view what, float divisor) {
    return base::Error{base::Code::kBrokenFile,
                       base::cat(what, " divides rope frequencies by ", divisor,
                                 ", which gives angles that cannot be computed")};
  };
  for (const model::Block& block : model_.spec.blocks) {
    if (!fits(block.attention.rope.factor)) {
      return error("rope.scaling.factor", block.attention.rope.factor);
    }
  }
  const engine::Weights weights = engine::bind_weights(map_, weights_->arena.data(0));
  const auto check = [&](const model::TensorInfo* tensor, const float* factors) -> base::Status {
    for (int64_t i = 0; tensor != nullptr && i < tensor->row_length(); i++) {
      if (!fits(factors[i])) return error(tensor->name, factors[i]);
    }
    return {};
  };
  RETURN_IF_ERROR(check(model_.rope_factors, weights.rope_factors));
  RETURN_IF_ERROR(check(model_.rope_factors_long, weights.rope_factors_long));
  return {};
}

RankExchangeOptions RankHost::exchange_options() const {
  RankExchangeOptions options;
  options.rank = options_.rank;
  options.ranks = options_.rank_count;
  options.cpus = options_.cpus;
  options.os_node = options_.os_node;
  options.choice = options_.exchange;
  options.group_id = options_.group_id;
  options.arena_directory = options_.arena_directory;
  options.broker_endpoint = options_.broker_endpoint;
  options.slice_bytes_max = engine::slice_bytes_max(model_.spec, plan_, shape_.columns_max);
  options.record_bytes_max = engine::step_record_bytes_max(shape_);
  options.oversubscribed = options_.oversubscribed;
  options.kv_stamp = kv_->stamp();
  options.timeout_ns = kJoinTimeout;
  return options;
}

base::Status RankHost::acquire(const LoadWatch& watch) {
  const SliceOf slice = {options_.rank, options_.rank_count, options_.os_node};
  const WeightArenaOptions options = {
      .directory = options_.weights_directory,
      .name = weight_arena_name(names_, slice),
      .private_directory = options_.arena_directory,
      .private_name = base::cat(options_.group_id, ".", options_.rank),
      .named = options_.named_weights,
      .arena = {.identity = weight_identity(model_, names_, slice, *ops_),
                .node = options_.os_node,
                .keep = options_.keep_weights,
                .small = options_.huge_pages == shm::HugePages::kOff,
                .label = std::filesystem::path(options_.model_path).filename(),
                .keep_on = [&] { return watch(0, map_.bytes); }}};
  ASSIGN_OR_RETURN(const shm::ArenaPlan plan, plan_weight_arena(map_));
  const WeightSteps steps = {
      .load = [&](shm::Arena& arena) { return load_into(arena, watch); },
      .hash = [&]() -> base::Result<shm::Hash128> {
        ASSIGN_OR_RETURN(const auto team, engine::ThreadTeam::start(options_.cpus));
        const RankSlices slices{model_, plan_, options_.rank, map_};
        return hash_weights(slices, {.team = team.get(), .on_progress = [&](uint64_t done) {
                                       return watch(done, map_.bytes);
                                     }});
      },
      .on_progress = watch};
  ASSIGN_OR_RETURN(WeightArena weights, acquire_weights(options, plan, steps));
  weights_.emplace(std::move(weights));
  return strict(weights_bind(), "weights");
}

base::Result<shm::Hash128> RankHost::load_into(shm::Arena& arena, const LoadWatch& watch) {
  RETURN_IF_ERROR(strict(arena.region().bind(), "weights"));
  ASSIGN_OR_RETURN(const auto team, engine::ThreadTeam::start(options_.cpus));
  LoadOptions load{.team = team.get(), .on_progress = {}};
  load.on_progress = [&](uint64_t done) {
    arena.set_progress(done);
    return watch(done, map_.bytes);
  };
  const RankSlices slices{model_, plan_, options_.rank, map_};
  ASSIGN_OR_RETURN(const LoadResult loaded, load_weights(slices, arena.data(0), load));
  size_t entry = 0;  // of the arena's table, which has no empty slices
  for (size_t i = 0; i < map_.slices.size(); i++) {
    if (map_.slices[i].bytes() > 0) arena.set_checksum(entry++, loaded.checksums[i]);
  }
  return loaded.content;
}

base::Status RankHost::strict(shm::Bind bind, std::string_view what) const {
  if (!options_.strict_placement || bind != shm::Bind::kDenied) return {};
  return base::Error{base::Code::kUnsupported,
                     base::cat("the ", what, " are ", placement_text(bind, options_.os_node),
                               "; without --strict-placement they lie where pinned threads touch "
                               "them first")};
}

shm::Bind RankHost::weights_bind() const {
  const shm::Arena& arena = weights_->arena;
  if (!weights_->attached) return arena.region().bind();
  if (options_.os_node < 0) return shm::Bind::kNotAsked;
  // The policy belongs to the file: what its loader could do holds for everybody.
  return (arena.header().flags & shm::kArenaBound) != 0 ? shm::Bind::kBound : shm::Bind::kDenied;
}

void RankHost::release_weights() {
  leader_.reset();
  follower_.reset();
  engine_.reset();
  if (weights_) weights_->arena.unlink_if_last();
  weights_.reset();
}

// Before the ranks meet: what an earlier process left decides whether they keep their pools.
base::Status RankHost::find_kv() {
  const std::string name = options_.named_kv
                               ? base::cat("kv.", options_.rank)
                               : base::cat(options_.group_id, ".", options_.rank, ".kv");
  ASSIGN_OR_RETURN(RankKv kv,
                   RankKv::find({.path = base::cat(options_.arena_directory, "/", name),
                                 .named = options_.named_kv,
                                 .small_pages = options_.huge_pages == shm::HugePages::kOff,
                                 .near_count = shape_.kv_near_count,
                                 .identity = kv_identity(
                                     {.model = &model_,
                                      .plan = &plan_,
                                      .ops = ops_,
                                      .type = kv_type_,
                                      .counts = {shape_.kv_block_count, shape_.kv_near_count},
                                      .rank = options_.rank,
                                      .os_node = options_.os_node})}));
  kv_.emplace(std::move(kv));
  return {};
}

std::string placement_text(shm::Bind bind, int node) {
  switch (bind) {
    case shm::Bind::kNotAsked: return "bound to no node (simulated)";
    case shm::Bind::kBound: return base::cat("bound to node ", node);
    case shm::Bind::kDenied: break;
  }
  return base::cat(
      "not bound to node ", node,
      ": the system forbids mbind (EPERM); in a container --cap-add SYS_NICE allows it");
}

proto::PlacementReply RankHost::placement() const {
  CHECK(weights_ && kv_ && kv_->is_open(), "placement before load");
  proto::PlacementReply reply = placement_report(
      {.os_node = options_.os_node,
       .map = &map_,
       .arena = {weights_->arena.region().data(), weights_->arena.region().bytes()},
       .weights = weights_->arena.data(0),
       .kv_cache = {kv_->data(), kv_->bytes()},
       .exchange = exchange_ ? exchange_->own_memory() : std::span<const std::byte>()});
  reply.rank = options_.rank;
  return reply;
}

std::vector<proto::LayerUse> RankHost::expert_use() const {
  CHECK(engine_ != nullptr, "expert use before load");
  const auto& blocks = model_.spec.blocks;
  if (std::ranges::none_of(blocks, [](const auto& block) { return block.experts.has_value(); }))
    return {};
  std::vector<proto::LayerUse> layers;
  for (std::vector<uint64_t>& choices : engine_->expert_use()) {
    const size_t layer = layers.size();
    const plan::BlockShare& own = plan_.ranks[static_cast<size_t>(options_.rank)].blocks[layer];
    proto::LayerUse use;
    // Of a stage one rank is enough, and all of them would be counted twice.
    if (plan_.members[layer].first() == options_.rank) use.choices = std::move(choices);
    if (own.whole_experts) use.owners.resize(use.choices.size());
    for (int r = 0; r < plan_.rank_count() && !use.owners.empty(); r++) {
      for (const int32_t expert : plan_.ranks[static_cast<size_t>(r)].blocks[layer].owned)
        use.owners[static_cast<size_t>(expert)] = r;
    }
    layers.push_back(std::move(use));
  }
  return layers;
}

RankReport RankHost::report() const {
  RankReport report;
  report.weight_bytes = map_.bytes;
  if (kv_ && kv_->is_open()) {
    report.kv_bytes = kv_->bytes();
    report.kv_blocks_found = kv_->found_blocks();
    report.kv_note = kv_->note();
  }
  if (weights_) {
    report.attached_bytes = weights_->attached ? map_.bytes : 0;
    report.content = weights_->arena.header().content;
    const auto pages = shm::page_report(weights_->arena.region().data());
    if (pages.ok()) report.huge_page_bytes = pages->huge_bytes;
  }
  if (weights_ && kv_ && kv_->is_open())
    report.bind = std::max(weights_bind(), kv_->arena().bind());
  if (exchange_) {
    report.exchange = exchange_->kind();
    report.exchange_note = exchange_->note();
  }
  if (engine_) report.engine = engine_->stats();
  return report;
}

}  // namespace worker
