#include "engine/rank_engine.h"

#include <algorithm>
#include <chrono>

#include "base/cat.h"
#include "shm/pin.h"

namespace engine {

namespace {

/// How a step of several threads ended. A thread that waits for the others of its rank is only told
/// to stop; the one that met the reason says more.
base::Wait worst_of(const std::vector<base::Wait>& waits) {
  base::Wait worst = base::Wait::kOk;
  for (const base::Wait wait : waits) {
    if (worst == base::Wait::kOk || worst == base::Wait::kAborted) {
      if (wait != base::Wait::kOk) worst = wait;
    }
  }
  return worst;
}

base::Error group_ended(base::Wait wait, const base::Exchange& exchange) {
  switch (wait) {
    case base::Wait::kTimeout:
      return {base::Code::kTimeout,
              "a rank of the group did not answer in time; the step was given up"};
    case base::Wait::kAborted:
      return {base::Code::kCancelled, "the group was told to stop in the middle of a step"};
    case base::Wait::kBroken:
      return {base::Code::kPeerLost,
              base::cat(exchange.fault(),
                        "; the step was given up: start all ranks from the same plan and program")};
    default:
      return {base::Code::kPeerLost, "another worker of the group died; the step was given up"};
  }
}

}  // namespace

size_t kv_pool_bytes(const model::ModelSpec& spec, const plan::RankShare& share,
                     kernels::KvType type, KvCounts counts) {
  return KvPool(spec, share, type, counts).bytes();
}

RankEngine::RankEngine(RankEngineOptions options)
    : options_(std::move(options)),
      weights_(bind_weights(*options_.weight_map, options_.weights)),
      kv_(options_.model->spec, options_.plan.ranks[static_cast<size_t>(options_.rank)],
          options_.kv_type, {options_.shape.kv_block_count, options_.shape.kv_near_count}),
      scratch_(options_.cpus.size()),
      waits_(options_.cpus.size()),
      view_(options_.shape),
      roster_(options_.cpus, static_cast<int>(std::thread::hardware_concurrency()),
              options_.roster),
      run_delays_(options_.cpus.size()),
      delay_ns_(options_.cpus.size()) {
  kv_.bind(options_.kv_memory);
}

base::Result<std::unique_ptr<RankEngine>> RankEngine::start(RankEngineOptions options) {
  std::unique_ptr<RankEngine> engine(new RankEngine(std::move(options)));
  RankEngineOptions& o = engine->options_;
  ASSIGN_OR_RETURN(engine->team_, ThreadTeam::start(o.cpus));
  engine->rank_ = std::make_unique<Rank>(RankOptions{.spec = &o.model->spec,
                                                     .plan = &o.plan,
                                                     .rank = o.rank,
                                                     .weights = &engine->weights_,
                                                     .kv = &engine->kv_,
                                                     .ops = o.ops,
                                                     .exchange = o.exchange,
                                                     .threads = engine->team_->size(),
                                                     .shape = o.shape,
                                                     .keeps_logits = o.rank == 0,
                                                     .expert_trace = o.expert_trace});
  engine->team_->run([raw = engine.get()](int t) {
    auto& scratch = raw->scratch_[static_cast<size_t>(t)];
    scratch = std::make_unique<ThreadScratch>(*raw->rank_, t);
    scratch->sequence = raw->options_.first_gather;
    raw->run_delays_[static_cast<size_t>(t)] = shm::RunDelay::of_this_thread();
  });
  engine->job_ = [raw = engine.get()](int t) {
    const auto i = static_cast<size_t>(t);
    raw->waits_[i] = Pass(*raw->rank_, *raw->scratch_[i], raw->view_).run();
  };
  engine->stats_.layers = o.model->spec.blocks.size();
  if (!o.run_delay) {
    o.run_delay = [raw = engine.get()](int t) {
      return raw->run_delays_[static_cast<size_t>(t)].read_ns();
    };
  }
  if (o.oversubscribed) engine->rank_->barrier.sleep_soon();
  engine->caller_cpu_ = o.cpus[0];
  engine->seat_members();
  return engine;
}

// Of the step in view_.
std::span<const int> RankEngine::members_of_step() const {
  const std::span<const int> all = roster_.members();
  if (options_.decode_threads <= 0 || !view_.one_column_each()) return all;
  return all.first(std::min(all.size(), as_size(options_.decode_threads)));
}

// Numbers the threads that take part, and brings them to where the step begins.
void RankEngine::seat_members() {
  const std::span<const int> members = members_of_step();
  const auto count = static_cast<int>(members.size());
  rank_->threads = count;
  rank_->barrier.set_threads(count);
  options_.exchange->set_threads(count);
  uint64_t sequence = 0, dispatch = 0;  // of those that took part last
  for (const auto& scratch : scratch_) {
    sequence = std::max(sequence, scratch->sequence);
    dispatch = std::max(dispatch, scratch->dispatch);
  }
  for (int i = 0; i < count; i++) {
    ThreadScratch& scratch = *scratch_[as_size(members[as_size(i)])];
    scratch.thread = i;
    scratch.sequence = sequence;
    scratch.dispatch = dispatch;
  }
  move_caller();
}

// A caller that does not compute still begins and ends each step, chooses tokens and answers. Left
// on its crowded CPU it would wait there for a turn each time; beside a member that rests then, it
// does not.
void RankEngine::move_caller() {
  const int cpu = options_.cpus[as_size(roster_.members()[0])];
  if (cpu < 0 || cpu == caller_cpu_) return;
  // If the system has forbidden that CPU meanwhile, the thread stays where it is.
  if (shm::pin_thread(cpu).ok()) caller_cpu_ = cpu;
}

// What the step's threads have measured; and who is to be in the next one.
void RankEngine::count(uint64_t step_ns) {
  const std::span<const int> members = members_of_step();
  const ThreadScratch& first = *scratch_[as_size(members[0])];
  stats_.steps++;
  stats_.threads = rank_->threads;
  stats_.columns += view_.columns().size();
  stats_.step_ns += step_ns;
  if (view_.one_column_each()) stats_.layer_waits = first.layer_waits;
  for (size_t phase = 0; phase < kPhaseCount; phase++)
    stats_.phase_ns[phase] += first.clock.ns()[phase];
  for (const int t : members) stats_.weight_bytes += scratch_[as_size(t)]->weight_bytes;
  if (!roster_.on_step(step_ns, members.size())) return;
  for (size_t t = 0; t < delay_ns_.size(); t++)
    delay_ns_[t] = options_.run_delay(static_cast<int>(t));
  if (roster_.judge(delay_ns_)) seat_members();
}

base::Result<StepOutput> RankEngine::run(std::span<const std::byte> record) {
  RETURN_IF_ERROR(view_.decode(record));
  const auto begin = std::chrono::steady_clock::now();
  const std::span<const int> members = members_of_step();
  if (static_cast<int>(members.size()) != rank_->threads) seat_members();
  team_->run(job_, members);
  if (const base::Wait wait = worst_of(waits_); wait != base::Wait::kOk) {
    return group_ended(wait, *options_.exchange);
  }
  const auto elapsed = std::chrono::steady_clock::now() - begin;
  count(
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
  for (size_t i = 0; i < view_.wanted().size() && rank_->options.keeps_logits; i++) {
    int32_t& fault = rank_->fault_layer[as_size(view_.wanted()[i])];
    if (fault < 0 && rank_->bad_logits[i] != 0) fault = kLogitsFault;
  }
  const size_t rows = rank_->options.keeps_logits ? view_.wanted().size() : 0;
  return StepOutput{
      .logits = {rank_->logits.data(), rows * static_cast<size_t>(options_.shape.vocabulary)},
      .fault_layer = {rank_->fault_layer.data(), view_.columns().size()}};
}

std::vector<std::vector<uint64_t>> RankEngine::expert_use() const {
  std::vector<std::vector<uint64_t>> use;
  for (size_t layer = 0; layer < rank_->spec.blocks.size(); layer++) {
    const auto& experts = rank_->spec.blocks[layer].experts;
    const uint64_t* counts = rank_->expert_use.data() + layer * as_size(rank_->limits.experts);
    use.emplace_back(counts, counts + (experts ? experts->count : 0));
  }
  return use;
}

LeaderRunner::LeaderRunner(RankEngine& engine, base::StepFeed* feed)
    : engine_(engine), feed_(feed), record_(step_record_bytes_max(engine.shape())) {}

base::Result<StepOutput> LeaderRunner::run(const Step& step) {
  ASSIGN_OR_RETURN(const size_t bytes, encode_step(step, engine_.shape(), record_));
  const std::span<const std::byte> record(record_.data(), bytes);
  if (feed_ != nullptr) {
    const base::Wait wait = feed_->publish(next_sequence_++, record);
    if (wait != base::Wait::kOk) return group_ended(wait, engine_.exchange());
  }
  return engine_.run(record);
}

Follower::Follower(RankEngine& engine, base::StepFeed& feed) : engine_(engine), feed_(feed) {
  record_.reserve(step_record_bytes_max(engine.shape()));
}

base::Result<bool> Follower::run_one(base::TimeNs slice_ns) {
  const base::Wait wait = feed_.read(next_sequence_, slice_ns, record_);
  if (wait == base::Wait::kTimeout) return false;
  if (wait != base::Wait::kOk) return group_ended(wait, engine_.exchange());
  next_sequence_++;
  auto output = engine_.run(record_);
  if (!output.ok()) return output.error();
  return true;
}

}  // namespace engine
