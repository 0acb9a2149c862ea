#include "cli/cluster_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/cat.h"
#include "proto/envelope.h"
#include "proto/zmq_channel.h"
#include "shm/arena_dir.h"

namespace cli {

namespace {

constexpr base::TimeNs kMillisecond = 1'000'000;
constexpr base::TimeNs kPumpWait = 50 * kMillisecond;
// How long workers may take to end when told to; a step of a large model can last that long.
constexpr base::TimeNs kStopTime = 3000 * kMillisecond;
constexpr base::TimeNs kStopLoadingTime = 200 * kMillisecond;
// How long after an error the death that caused it may become visible.
constexpr base::TimeNs kCauseTime = 300 * kMillisecond;

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += base::cat(text.empty() ? "" : ",", number);
  return text;
}

const char* kv_type_name(kernels::KvType type) {
  return type == kernels::KvType::kF32 ? "f32" : "f16";
}

/// What `numoe worker` of one rank is called with.
std::vector<std::string> worker_arguments(const worker::RankHostOptions& rank,
                                          const std::string& endpoint, uint64_t incarnation) {
  std::vector<std::string> arguments = {"numoe", "worker", rank.model_path};
  const auto add = [&](const char* name, const std::string& value) {
    // One word, because a value like -1 would look like an option.
    arguments.push_back(base::cat(name, "=", value));
  };
  add("--rank", base::cat(rank.rank));
  add("--ranks", base::cat(rank.rank_count));
  add("--group", rank.group_id);
  add("--endpoint", endpoint);
  add("--incarnation", base::cat(incarnation));
  add("--os-node", base::cat(rank.os_node));
  add("--cpus", join(rank.cpus));
  add("--isa", rank.isa);
  if (rank.kv_type) add("--kv-type", kv_type_name(*rank.kv_type));
  add("--ctx", base::cat(rank.context));
  add("--chunk", base::cat(rank.columns_max));
  add("--arena-dir", rank.arena_directory);
  add("--exchange", rank.exchange);
  add("--sequences", base::cat(rank.sequences));
  if (rank.oversubscribed) arguments.push_back("--oversubscribed");
  return arguments;
}

}  // namespace

base::Result<std::unique_ptr<ClusterLoop>> ClusterLoop::start(ClusterOptions options,
                                                              const worker::BackendFactory& factory,
                                                              SignalWatch& signals,
                                                              base::Log& log) {
  std::unique_ptr<ClusterLoop> loop(new ClusterLoop(std::move(options), signals, log));
  RETURN_IF_ERROR(loop->place());
  worker::RankHostOptions& rank = loop->options_.rank;
  rank.rank = 0;
  rank.rank_count = loop->ranks_;
  {
    // Opened here too: so a bad file or option is one sentence before any process was started, and
    // the broker knows what the workers must have.
    ASSIGN_OR_RETURN(const auto backend, factory(rank));
    loop->broker_.emplace(broker::BrokerOptions{.incarnation = random_bits(),
                                                .rank_count = loop->ranks_,
                                                .model_fingerprint = backend->fingerprint(),
                                                .requests_max = loop->options_.requests_max});
  }
  if (loop->options_.before_loading) RETURN_IF_ERROR(loop->options_.before_loading(loop->ranks_));
  RETURN_IF_ERROR(loop->set_up());
  RETURN_IF_ERROR(loop->start_workers());
  return loop;
}

base::Status ClusterLoop::place() {
  ASSIGN_OR_RETURN(placement_, place_ranks_here(options_.place, log_));
  ranks_ = static_cast<int>(placement_.ranks.size());
  return {};
}

base::Status ClusterLoop::set_up() {
  ASSIGN_OR_RETURN(const shm::ArenaDir arenas,
                   shm::choose_arena_dir({.directory = options_.arena_directory}));
  if (!arenas.warning.empty()) log_.warning(arenas.warning);
  ASSIGN_OR_RETURN(RunDirectory arena_directory, RunDirectory::create(arenas.directory));
  arena_directory_.emplace(std::move(arena_directory));
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  ASSIGN_OR_RETURN(const std::string sockets,
                   proto::ipc_directory(runtime == nullptr ? "" : runtime));
  ASSIGN_OR_RETURN(RunDirectory socket_directory, RunDirectory::create(sockets));
  socket_directory_.emplace(std::move(socket_directory));
  ASSIGN_OR_RETURN(endpoint_, proto::ipc_endpoint(socket_directory_->path(), "broker"));
  ASSIGN_OR_RETURN(channel_, proto::bind_broker({.endpoint = endpoint_}));
  return {};
}

base::Status ClusterLoop::start_workers() {
  // A clock that the next start finds later.
  incarnation_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                           std::chrono::system_clock::now().time_since_epoch())
                                           .count());
  for (int rank = 0; rank < ranks_; rank++) {
    const shm::RankPlacement& place = placement_.ranks[static_cast<size_t>(rank)];
    worker::RankHostOptions own = options_.rank;
    own.rank = rank;
    own.group_id = arena_directory_->id();
    own.arena_directory = arena_directory_->path();
    own.os_node = place.os_node;
    own.cpus = place.cpus;
    own.oversubscribed = placement_.oversubscribed;
    ASSIGN_OR_RETURN(ChildProcess process,
                     ChildProcess::start(options_.program,
                                         worker_arguments(own, endpoint_, incarnation_), signals_));
    workers_.push_back(std::move(process));
  }
  return {};
}

std::optional<std::pair<uint64_t, uint64_t>> ClusterLoop::progress() const {
  uint64_t done = 0, total = 0;
  for (int rank = 0; rank < ranks_; rank++) {
    const broker::RankInfo* info = broker_->rank(rank);
    // Before all have told their size the sum would run backwards.
    if (info == nullptr || info->bytes_total == 0) return std::nullopt;
    done += info->bytes_done;
    total += info->bytes_total;
  }
  return std::pair(done, total);
}

void ClusterLoop::on_loaded() {
  loaded_ = true;
  if (!ready(0).exchange_note.empty()) log_.warning(ready(0).exchange_note);
  for (int rank = 0; rank < ranks_; rank++) {
    if (!ready(rank).binding_denied) continue;
    log_.warning(base::cat("memory of rank ", rank, " is ", ready(rank).memory_placement,
                           "; its pages lie where pinned threads touched them first"));
    break;  // the others would say the same
  }
}

void ClusterLoop::wait(std::span<const int> descriptors) {
  std::vector<int> watched(descriptors.begin(), descriptors.end());
  watched.push_back(signals_.descriptor());
  flush();
  channel_->wait(kPumpWait, watched);
}

base::Status ClusterLoop::step() {
  // What has come counts, also the last word of a worker that was killed right after it.
  receive();
  broker_->on_tick(clock_.now());
  flush();
  std::vector<broker::Event> events = broker_->take_events();
  std::optional<base::Error> lost;
  for (const broker::Event& event : events)
    if (const auto* end = std::get_if<broker::GroupLostEvent>(&event)) lost = end->error;
  for (broker::Event& event : events) {
    if (std::holds_alternative<broker::GroupReadyEvent>(event)) on_loaded();
    // Requests that end with the group are told the cause, which is looked for below.
    const auto* token = std::get_if<broker::TokenEvent>(&event);
    if (!lost || (token != nullptr && token->chunk.finish != proto::Finish::kError))
      events_.push_back(std::move(event));
  }
  if (const auto killed = ended_worker(EndedHow::kKilled)) return *killed;
  if (lost) return cause_of(*lost);
  // Only now: a worker that gives up says why before it ends.
  if (const auto ended = ended_worker(EndedHow::kAnyhow)) return *ended;
  return {};
}

void ClusterLoop::receive() {
  const std::string leader = proto::peer_name("rank-0", incarnation_);
  while (auto received = channel_->receive()) {
    if (received->peer == leader) heard_at_ = clock_.now();
    broker_->on_message(received->peer, received->message, clock_.now());
  }
}

void ClusterLoop::flush() {
  for (broker::Outgoing& out : broker_->take_outbox()) {
    const base::Status sent = channel_->send(out.peer, std::move(out.message));
    if (!sent.ok()) broker_->on_peer_lost(out.peer, sent.error());
  }
}

std::optional<base::Error> ClusterLoop::ended_worker(EndedHow how) {
  for (size_t rank = 0; rank < workers_.size(); rank++) {
    const std::optional<Ending>& ending = workers_[rank].ended();
    if (!ending || (how == EndedHow::kKilled && ending->signal == 0)) continue;
    return base::Error{
        base::Code::kPeerLost,
        base::cat("worker ", rank, " (process ", workers_[rank].pid(), ") ", ending->text,
                  options_.when_a_worker_ends.empty() ? "" : "; ", options_.when_a_worker_ends)};
  }
  return std::nullopt;
}

// During a long prompt a healthy leader has nothing to say, but it answers between its steps.
base::Status ClusterLoop::watch_leader() {
  const base::TimeNs now = clock_.now();
  const base::TimeNs silence = now - heard_at_;
  if (silence >= options_.silence_max)
    return base::Error{
        base::Code::kTimeout,
        base::cat(
            "worker 0 (process ", worker_pid(0), ") has said nothing for ", silence / 1'000'000'000,
            " s while a request runs; look whether it is stopped, or use a smaller --chunk if "
            "one step takes that long")};
  const base::TimeNs probe_after = options_.silence_max / 8;
  if (silence >= probe_after && now - probed_at_ >= probe_after) {
    probed_at_ = now;
    broker_->request_stats();
  }
  return {};
}

base::Error ClusterLoop::cause_of(const base::Error& error) {
  const base::TimeNs end = clock_.now() + kCauseTime;
  do {
    if (const auto killed = ended_worker(EndedHow::kKilled)) return *killed;
    channel_->wait(10 * kMillisecond, {});
    while (channel_->receive()) {
    }
  } while (clock_.now() < end);
  return error;
}

ClusterLoop::~ClusterLoop() {
  if (!channel_) return;
  // Who is still loading cannot hear us; nothing is lost by ending it at once.
  const base::TimeNs end = clock_.now() + (loaded_ ? kStopTime : kStopLoadingTime);
  const int watched[] = {signals_.descriptor()};
  const auto all_ended = [&] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](ChildProcess& worker) { return worker.ended().has_value(); });
  };
  broker_->shut_down("the command has ended");
  while (!all_ended() && clock_.now() < end) {
    flush();
    channel_->wait(10 * kMillisecond, watched);
    signals_.asked_to_end();
    receive();
  }
  workers_.clear();  // kills who did not end
}

}  // namespace cli
