#include "cli/cluster_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/cat.h"
#include "proto/zmq_channel.h"
#include "shm/arena_dir.h"

namespace cli {

namespace {

constexpr base::TimeNs kMillisecond = 1'000'000;
constexpr base::TimeNs kPumpWait = 50 * kMillisecond;
// How long workers may take to end when told to; a step of a large model can last that long.
constexpr base::TimeNs kStopTime = 3000 * kMillisecond;
constexpr base::TimeNs kStopLoadingTime = 200 * kMillisecond;
// The same of a group that has lost a rank and is to be started again.
constexpr base::TimeNs kEndTime = 100 * kMillisecond;
// How long workers of an earlier server may take to say hello, and to say something more while they
// load. That they live is known all the time; only one that is stopped makes us wait so long.
constexpr base::TimeNs kAdoptTime = 2000 * kMillisecond;
constexpr base::TimeNs kAdoptLoadTime = 10'000 * kMillisecond;
// How long after an error the death that caused it may become visible.
constexpr base::TimeNs kCauseTime = 300 * kMillisecond;

}  // namespace

base::Result<std::unique_ptr<ClusterLoop>> ClusterLoop::start(ClusterOptions options,
                                                              const worker::BackendFactory& factory,
                                                              SignalWatch& signals,
                                                              base::Log& log) {
  ASSIGN_OR_RETURN(auto loop, open(std::move(options), factory, signals, log));
  ClusterLoop* const loops[] = {loop.get()};
  RETURN_IF_ERROR(check_room(loops));
  RETURN_IF_ERROR(loop->begin());
  return loop;
}

base::Result<std::unique_ptr<ClusterLoop>> ClusterLoop::open(ClusterOptions options,
                                                             const worker::BackendFactory& factory,
                                                             SignalWatch& signals, base::Log& log) {
  std::unique_ptr<ClusterLoop> loop(new ClusterLoop(std::move(options), signals, log));
  loop->silence_.emplace(loop->options_.silence_max);
  RETURN_IF_ERROR(loop->place());
  worker::RankHostOptions& rank = loop->options_.rank;
  rank.rank = 0;
  rank.rank_count = loop->ranks_;
  // Opened here too: so a bad file or option is one sentence before any process was started, and
  // the broker knows what the workers must have.
  ASSIGN_OR_RETURN(loop->backend_, factory(rank));
  if (loop->options_.before_loading) RETURN_IF_ERROR(loop->options_.before_loading(rank));
  RETURN_IF_ERROR(loop->set_up());
  return loop;
}

base::Status ClusterLoop::place() {
  if (options_.placement) {
    placement_ = *options_.placement;
  } else {
    ASSIGN_OR_RETURN(placement_, place_ranks_here(options_.place, log_));
  }
  ranks_ = static_cast<int>(placement_.ranks.size());
  options_.rank.shares = placement_.shares;
  return {};
}

base::Status ClusterLoop::make_directories(const std::string& fingerprint) {
  ASSIGN_OR_RETURN(const shm::ArenaDir arenas,
                   shm::choose_arena_dir({.directory = options_.arena_directory}));
  if (!arenas.warning.empty() && options_.is_first) log_.warning(arenas.warning);
  std::string parent = arenas.directory;
  if (arenas.hugetlb) {
    // Whose pages are too large for small files.
    ASSIGN_OR_RETURN(const shm::ArenaDir others, shm::choose_arena_dir({}));
    parent = others.directory;
  }
  options_.rank.weights_directory = arenas.directory;
  options_.rank.named_weights = options_.supervised.has_value();
  const char* variable = std::getenv("XDG_RUNTIME_DIR");
  const std::string runtime = variable == nullptr ? "" : variable;
  if (options_.supervised) {
    RunDirectory::remove_leftovers(parent);
    ASSIGN_OR_RETURN(InstanceDirectory instance,
                     InstanceDirectory::take(
                         {.parent = parent, .runtime = runtime, .fingerprint = fingerprint}));
    instance_.emplace(std::move(instance));
    endpoint_ = instance_->endpoint();
    options_.rank.arena_directory = instance_->path();
    return {};
  }
  ASSIGN_OR_RETURN(RunDirectory run_directory, RunDirectory::create(parent));
  run_directory_.emplace(std::move(run_directory));
  ASSIGN_OR_RETURN(const std::string sockets, proto::ipc_directory(runtime));
  ASSIGN_OR_RETURN(RunDirectory socket_directory, RunDirectory::create(sockets));
  socket_directory_.emplace(std::move(socket_directory));
  ASSIGN_OR_RETURN(endpoint_, proto::ipc_endpoint(socket_directory_->path(), "broker"));
  options_.rank.arena_directory = run_directory_->path();
  return {};
}

worker::RoomQuestion ClusterLoop::room_question() const {
  worker::RoomQuestion question{.weights_directory = options_.rank.weights_directory,
                                .group_directory = options_.rank.arena_directory,
                                .named_weights = options_.rank.named_weights,
                                .huge_pages = options_.rank.huge_pages,
                                .mlock = options_.rank.mlock};
  for (const shm::RankPlacement& place : placement_.ranks)
    question.os_nodes.push_back(place.os_node);
  return question;
}

// Workers that were taken over have their memory.
base::Status ClusterLoop::check_room(std::span<ClusterLoop* const> loops) {
  ClusterLoop* first = nullptr;
  std::vector<worker::ArenaNeed> others;
  for (ClusterLoop* const loop : loops) {
    if (loop->adopted_) continue;
    if (first == nullptr) {
      first = loop;
      continue;
    }
    for (worker::ArenaNeed& need : loop->backend_->room_needs(loop->room_question()))
      others.push_back(std::move(need));
  }
  if (first == nullptr) return {};
  worker::RoomQuestion question = first->room_question();
  question.others = std::move(others);
  ASSIGN_OR_RETURN(const std::string warning, first->backend_->check_room(question));
  if (!warning.empty() && !first->loaded_) first->log_.warning(warning);
  return {};
}

base::Status ClusterLoop::set_up() {
  const std::string fingerprint = backend_->fingerprint();
  weights_prefix_ = backend_->weights_prefix();
  RETURN_IF_ERROR(make_directories(fingerprint + options_.instance));
  workers_.emplace(WorkerProcessesOptions{.program = options_.program,
                                          .rank = options_.rank,
                                          .placement = placement_,
                                          .endpoint = endpoint_,
                                          .outlive = options_.supervised},
                   signals_);
  using Leftover = WorkerProcesses::Leftover;
  const Leftover leftover = instance_ ? workers_->take_over(*instance_) : Leftover::kNone;
  adopted_ = leftover == Leftover::kAdopted;
  if (adopted_)
    log_.info("taking over the workers of a server that was killed");
  else if (leftover == Leftover::kKilled)
    log_.warning(
        "workers of a server that was killed were ended: they had other options, or not all live");
  if (!weights_prefix_.empty() && options_.supervised)
    remove_other_weights(options_.rank.weights_directory, weights_prefix_);
  broker_.emplace(broker::BrokerOptions{.incarnation = random_bits(),
                                        .rank_count = ranks_,
                                        .model_fingerprint = fingerprint,
                                        .requests_max = options_.requests_max,
                                        .replay = options_.supervised.has_value(),
                                        .adopt = adopted_});
  return {};
}

base::Status ClusterLoop::begin() {
  // They see by it that there is another server, and look for it. Before they can reach it: once
  // they have joined they must not take it for news.
  if (adopted_) RETURN_IF_ERROR(instance_->write_plan(workers_->plan()));
  ASSIGN_OR_RETURN(channel_, proto::bind_broker({.endpoint = endpoint_}));
  begin_watch();
  if (!adopted_) return start_workers();
  adopted_by_ = clock_.now() + kAdoptTime;
  return {};
}

base::Status ClusterLoop::start_workers() {
  workers_->prepare(random_id());
  if (instance_) {
    instance_->clean();
    // Before the workers, which look whether they are meant.
    RETURN_IF_ERROR(instance_->write_plan(workers_->plan()));
  }
  RETURN_IF_ERROR(workers_->start());
  phase_ = Phase::kRunning;
  begin_watch();
  return {};
}

base::Status ClusterLoop::start_again() {
  adopted_ = false;
  adopted_loads_.clear();
  workers_->clear();
  held_weights_.release_removed();
  ClusterLoop* const own[] = {this};
  base::Status started = restore_directories();
  if (started.ok()) started = check_room(own);
  if (started.ok()) started = start_workers();
  if (!started.ok()) cause_ = started.error();
  return started;
}

// On many systems /dev/shm is emptied when an ordinary user logs out.
base::Status ClusterLoop::restore_directories() {
  RETURN_IF_ERROR(shm::choose_arena_dir({.directory = options_.arena_directory}));
  if (!instance_) return {};
  const bool elsewhere = !instance_->path().starts_with(options_.rank.weights_directory);
  if (elsewhere) RETURN_IF_ERROR(shm::choose_arena_dir({}));  // as make_directories()
  return instance_->restore();
}

std::optional<std::pair<uint64_t, uint64_t>> ClusterLoop::progress() const {
  uint64_t done = 0, total = 0;
  for (int rank = 0; rank < ranks_; rank++) {
    const broker::RankInfo* info = broker_->rank(rank);
    std::pair<uint64_t, uint64_t> bytes;
    if (info != nullptr) bytes = {info->bytes_done, info->bytes_total};
    // One of an earlier server joins when it has loaded, and tells its size before.
    const auto adopted = adopted_loads_.find(rank);
    if (bytes.second == 0 && adopted != adopted_loads_.end()) bytes = adopted->second;
    // Before all have told their size the sum would run backwards.
    if (bytes.second == 0) return std::nullopt;
    done += bytes.first;
    total += bytes.second;
  }
  return std::pair(done, total);
}

void ClusterLoop::on_adopted_load(const broker::AdoptLoadEvent& load) {
  adopted_by_ = std::max(adopted_by_, clock_.now() + kAdoptLoadTime);
  for (int rank = 0; rank < ranks_; rank++)
    if (load.peer == workers_->peer(rank))
      adopted_loads_[rank] = {load.bytes_done, load.bytes_total};
}

void ClusterLoop::on_loaded() {
  begin_watch();
  if (options_.supervised && !weights_prefix_.empty())
    held_weights_.take(options_.rank.weights_directory, weights_prefix_);
  if (std::exchange(loaded_, true)) return tell_lost_weights();  // the rest was said
  if (!ready(0).exchange_note.empty()) log_.warning(ready(0).exchange_note);
  for (int rank = 0; rank < ranks_; rank++) {
    if (!ready(rank).binding_denied) continue;
    log_.warning(base::cat("memory of rank ", rank, " is ", ready(rank).memory_placement,
                           "; its pages lie where pinned threads touched them first"));
    break;  // the others would say the same
  }
}

// A group that is started again finds its weights, unless somebody took their names away.
void ClusterLoop::tell_lost_weights() {
  if (!options_.supervised || weights_prefix_.empty()) return;
  for (int rank = 0; rank < ranks_; rank++) {
    if (ready(rank).arena_bytes == 0 || ready(rank).attached_bytes > 0) continue;
    log_.warning(base::cat("the weights in ", options_.rank.weights_directory,
                           " were removed by somebody and have been loaded again; numoe doctor "
                           "tells whether the system does that when a user logs out"));
    return;
  }
}

void ClusterLoop::wait(std::span<const int> descriptors) {
  ClusterLoop* const loops[] = {this};
  wait(loops, descriptors);
}

void ClusterLoop::wait(std::span<ClusterLoop* const> loops, std::span<const int> descriptors) {
  std::vector<int> watched(descriptors.begin(), descriptors.end());
  watched.push_back(loops[0]->signals_.descriptor());
  for (ClusterLoop* const loop : loops) {
    loop->flush();
    loop->silence_->on_turn(loop->clock_.now(), kPumpWait);
    for (const int descriptor : loop->workers_->descriptors()) watched.push_back(descriptor);
  }
  // The first one waits for all; nothing is sent any more after these have been looked at.
  bool is_there = false;
  for (ClusterLoop* const loop : loops.subspan(1)) {
    is_there = loop->channel_->has_message() || is_there;
    if (const int own = loop->channel_->descriptor(); own >= 0) watched.push_back(own);
  }
  loops[0]->channel_->wait(is_there ? 0 : kPumpWait, watched);
}

std::optional<base::Error> ClusterLoop::take_broker_events() {
  std::vector<broker::Event> events = broker_->take_events();
  std::optional<base::Error> lost;
  for (const broker::Event& event : events)
    if (const auto* end = std::get_if<broker::GroupLostEvent>(&event)) lost = end->error;
  for (broker::Event& event : events) {
    if (std::holds_alternative<broker::GroupReadyEvent>(event)) on_loaded();
    if (const auto* load = std::get_if<broker::AdoptLoadEvent>(&event)) on_adopted_load(*load);
    // Requests that end with the group are told the cause, which is looked for later.
    const auto* token = std::get_if<broker::TokenEvent>(&event);
    if (!lost || options_.supervised ||
        (token != nullptr && token->chunk.finish != proto::Finish::kError))
      events_.push_back(std::move(event));
  }
  return lost;
}

base::Status ClusterLoop::step() {
  // What has come counts, also the last word of a worker that was killed right after it.
  receive();
  broker_->on_tick(clock_.now());
  flush();
  std::optional<base::Error> lost = take_broker_events();
  if (options_.supervised) return watch_group(std::move(lost));
  using EndedHow = WorkerProcesses::EndedHow;
  if (const auto killed = ended_worker(EndedHow::kKilled)) return *killed;
  if (lost) return cause_of(*lost);
  // Only now: a worker that gives up says why before it ends.
  if (const auto ended = ended_worker(EndedHow::kAnyhow)) return *ended;
  return {};
}

base::Status ClusterLoop::watch_group(std::optional<base::Error> lost) {
  if (phase_ != Phase::kRunning) {
    go_on_ending();
    return {};
  }
  if (const auto killed = ended_worker(WorkerProcesses::EndedHow::kKilled)) lost = killed;
  if (!lost) lost = ended_worker(WorkerProcesses::EndedHow::kAnyhow);
  if (!lost && broker_->adopting() && clock_.now() >= adopted_by_)
    lost = base::Error{base::Code::kTimeout,
                       "the workers of the server that was killed did not answer"};
  if (!lost) return {};
  give_up(*lost);
  return *lost;
}

void ClusterLoop::give_up(const base::Error& error) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kEnding;
  cause_ = error;
  kill_at_ = clock_.now() + kEndTime;
  broker_->give_up_adoption(error.message);
  for (int rank = 0; rank < ranks_; rank++)
    broker_->on_peer_lost(workers_->peer(rank), error);  // the first one breaks the group
  flush();
  take_broker_events();
}

void ClusterLoop::go_on_ending() {
  if (phase_ == Phase::kDown) return;
  if (const auto killed = ended_worker(WorkerProcesses::EndedHow::kKilled)) cause_ = *killed;
  if (workers_->all_ended()) {
    phase_ = Phase::kDown;
  } else if (clock_.now() >= kill_at_) {
    workers_->kill();
  }
}

void ClusterLoop::receive() {
  while (auto received = channel_->receive()) {
    int rank = 0;
    while (rank < ranks_ && received->peer != workers_->peer(rank)) rank++;
    // Of a supervised cluster: a late word of a process that has ended must not break its
    // successor.
    if (options_.supervised && (rank == ranks_ || phase_ != Phase::kRunning)) continue;
    if (rank < ranks_) silence_->on_heard(rank, clock_.now());
    broker_->on_message(received->peer, received->message, clock_.now());
  }
}

void ClusterLoop::flush() {
  for (broker::Outgoing& out : broker_->take_outbox()) {
    const base::Status sent = channel_->send(out.peer, std::move(out.message));
    if (!sent.ok()) broker_->on_peer_lost(out.peer, sent.error());
  }
}

std::optional<base::Error> ClusterLoop::ended_worker(WorkerProcesses::EndedHow how) {
  const auto ended = workers_->ended(how);
  if (!ended) return std::nullopt;
  const std::string_view advice = options_.when_a_worker_ends;
  return base::Error{base::Code::kPeerLost, base::cat(*ended, advice.empty() ? "" : "; ", advice)};
}

base::Error ClusterLoop::silence_of(const SilenceWatch::Silence& silence, Work work) const {
  const std::string said = base::cat(workers_->describe(silence.rank), " has said nothing for ",
                                     silence.duration / 1'000'000'000, " s");
  if (work == Work::kNone) return {base::Code::kTimeout, said};
  std::string others;
  for (int other = 0; other < ranks_; other++)
    if (other != silence.rank)
      others +=
          base::cat(others.empty() ? "; it may wait for " : " or ", workers_->describe(other));
  return {base::Code::kTimeout,
          base::cat(said, " while a request runs", others,
                    "; look whether a process is stopped, or use a smaller --chunk if one step "
                    "takes that long")};
}

base::Status ClusterLoop::watch(Work work) {
  const base::TimeNs now = clock_.now();
  if (const auto silence = silence_->check(work, now)) return silence_of(*silence, work);
  // During a long prompt a healthy leader has nothing to say, but it answers between its steps.
  if (silence_->wants_probe(now)) broker_->request_stats();
  return {};
}

std::string ClusterLoop::silence() const {
  const auto silence = silence_->notable(clock_.now());
  if (!silence) return {};
  return base::cat(workers_->describe(silence->rank), " has said nothing for ",
                   silence->duration / 1'000'000'000, " s");
}

base::Error ClusterLoop::cause_of(const base::Error& error) {
  const base::TimeNs end = clock_.now() + kCauseTime;
  do {
    if (const auto killed = ended_worker(WorkerProcesses::EndedHow::kKilled)) return *killed;
    channel_->wait(10 * kMillisecond, {});
    while (channel_->receive()) {
    }
  } while (clock_.now() < end);
  return error;
}

void ClusterLoop::shut_down() {
  if (!channel_ || std::exchange(told_to_end_, true)) return;
  broker_->shut_down("the command has ended");
  flush();
}

ClusterLoop::~ClusterLoop() {
  if (!channel_) return;
  // Who is still loading cannot hear us; nothing is lost by ending it at once.
  const base::TimeNs end = clock_.now() + (loaded_ ? kStopTime : kStopLoadingTime);
  shut_down();
  while (!workers_->all_ended() && clock_.now() < end) {
    flush();
    std::vector<int> watched = workers_->descriptors();
    watched.push_back(signals_.descriptor());
    channel_->wait(10 * kMillisecond, watched);
    signals_.asked_to_end();
    receive();
  }
  workers_->kill();
  workers_->clear();
  held_weights_.release();
  if (!weights_prefix_.empty())
    worker::remove_unused_weights(options_.rank.weights_directory, weights_prefix_);
}

}  // namespace cli
