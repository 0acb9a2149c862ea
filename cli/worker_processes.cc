#include "cli/worker_processes.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/cat.h"
#include "cli/options.h"
#include "proto/envelope.h"
#include "worker/instance.h"

namespace cli {

namespace {

std::string join(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += base::cat(text.empty() ? "" : ",", number);
  return text;
}

const char* huge_pages_name(shm::HugePages pages) {
  switch (pages) {
    case shm::HugePages::kAuto: break;
    case shm::HugePages::kOff: return "off";
    case shm::HugePages::k2M: return "2m";
    case shm::HugePages::k1G: return "1g";
  }
  return "auto";
}

/// Whether a signal has stopped it; false if nobody knows.
bool is_stopped(pid_t pid) {
  const auto stat = shm::read_text(base::cat("/proc/", pid, "/stat"));
  const size_t name_end = stat.ok() ? stat->rfind(')') : std::string::npos;
  return name_end != std::string::npos && name_end + 2 < stat->size() &&
         (*stat)[name_end + 2] == 'T';
}

}  // namespace

std::vector<std::string> WorkerProcesses::arguments(int rank, const std::string& group_id,
                                                    uint64_t incarnation) const {
  const worker::RankHostOptions& of_all = options_.rank;
  const shm::RankPlacement& place = options_.placement.ranks[static_cast<size_t>(rank)];
  std::vector<std::string> words = {"numoe", "worker", of_all.model_path};
  const auto add = [&](const char* name, const std::string& value) {
    // One word, because a value like -1 would look like an option.
    words.push_back(base::cat(name, "=", value));
  };
  add("--rank", base::cat(rank));
  add("--ranks", base::cat(count()));
  add("--group", group_id);
  add("--endpoint", options_.endpoint);
  add("--incarnation", base::cat(incarnation));
  add("--os-node", base::cat(place.os_node));
  add("--cpus", join(place.cpus));
  // Numbers of threads, so whole.
  if (!of_all.shares.empty()) add("--shares", join({of_all.shares.begin(), of_all.shares.end()}));
  add("--strategy", plan::strategy_name(of_all.strategy));
  if (of_all.stages > 0) add("--stages", base::cat(of_all.stages));
  if (of_all.decode_threads > 0) add("--decode-threads", base::cat(of_all.decode_threads));
  if (!of_all.expert_use_path.empty()) add("--expert-use", of_all.expert_use_path);
  add("--isa", of_all.isa);
  if (of_all.kv_type) add("--kv-type", kernels::kv_type_name(*of_all.kv_type));
  add("--ctx", base::cat(of_all.context));
  add("--chunk", base::cat(of_all.columns_max));
  add("--arena-dir", of_all.arena_directory);
  add("--exchange", of_all.exchange);
  add("--sequences", base::cat(of_all.sequences));
  add("--huge-pages", huge_pages_name(of_all.huge_pages));
  if (of_all.mlock) words.push_back("--mlock");
  if (of_all.strict_placement) words.push_back("--strict-placement");
  if (of_all.keep_weights) words.push_back("--keep-weights");
  if (of_all.named_weights) words.push_back("--named-weights");
  if (!of_all.weights_directory.empty()) add("--weights-dir", of_all.weights_directory);
  if (options_.placement.oversubscribed) words.push_back("--oversubscribed");
  if (options_.outlive) {
    add("--instance", of_all.arena_directory);
    add("--orphan-timeout", base::cat(options_.outlive->orphan_ns / 1'000'000'000));
  }
  return words;
}

void WorkerProcesses::prepare(const std::string& group_id) {
  workers_.clear();
  killed_ = false;
  group_id_ = group_id;
  // A clock that the next start finds later, also if it is of another process.
  const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  incarnation_ = std::max(incarnation_ + 1, static_cast<uint64_t>(now.count()));
}

base::Status WorkerProcesses::start() {
  for (int rank = 0; rank < count(); rank++) {
    ASSIGN_OR_RETURN(
        ChildProcess process,
        ChildProcess::start({.program = options_.program,
                             .arguments = arguments(rank, group_id_, incarnation_),
                             .life = options_.outlive ? Life::kOutlivesUs : Life::kEndsWithUs},
                            signals_));
    workers_.push_back(std::move(process));
  }
  return {};
}

std::string WorkerProcesses::common_plan() const {
  std::string text = base::cat("numoe ", version(), "\n");
  for (int rank = 0; rank < count(); rank++) {
    for (const std::string& word : arguments(rank, "", 0)) text += base::cat(word, " ");
    text += "\n";
  }
  return text;
}

std::string WorkerProcesses::plan() const {
  return base::cat(worker::instance_head(incarnation_, group_id_), " ", broker_name_, "\n",
                   common_plan());
}

bool WorkerProcesses::read_plan(std::string_view text) {
  const size_t line = std::min(text.find('\n'), text.size());
  const size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (first >= line || second >= line || text.substr(line) != base::cat("\n", common_plan()))
    return false;
  group_id_ = text.substr(first + 1, second - first - 1);
  return std::from_chars(text.data(), text.data() + first, incarnation_).ptr == text.data() + first;
}

WorkerProcesses::Leftover WorkerProcesses::take_over(const InstanceDirectory& instance) {
  std::vector<ChildProcess> found;
  for (const worker::InstanceHolder& holder : worker::instance_holders(instance.path())) {
    auto process = ChildProcess::adopt(holder.pid);
    // Only now it cannot end and leave its number to another one.
    if (process.ok() && worker::is_held(instance.path(), holder))
      found.push_back(std::move(*process));
  }
  if (found.empty()) return Leftover::kNone;
  if (static_cast<int>(found.size()) == count() && read_plan(instance.plan())) {
    workers_ = std::move(found);
    return Leftover::kAdopted;
  }
  for (ChildProcess& process : found) process.kill();
  return Leftover::kKilled;
}

std::optional<std::string> WorkerProcesses::ended(EndedHow how) {
  if (killed_) return std::nullopt;
  for (size_t rank = 0; rank < workers_.size(); rank++) {
    const std::optional<Ending>& ending = workers_[rank].ended();
    if (!ending || (how == EndedHow::kKilled && ending->signal == 0)) continue;
    return base::cat("worker ", rank, " (process ", workers_[rank].pid(), ") ", ending->text);
  }
  return std::nullopt;
}

bool WorkerProcesses::all_ended() {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](ChildProcess& worker) { return worker.ended().has_value(); });
}

void WorkerProcesses::kill() {
  killed_ = true;
  for (ChildProcess& worker : workers_) worker.kill();
}

std::vector<int> WorkerProcesses::descriptors() {
  std::vector<int> watched;
  for (ChildProcess& worker : workers_)
    if (worker.descriptor() >= 0 && !worker.ended()) watched.push_back(worker.descriptor());
  return watched;
}

std::string WorkerProcesses::peer(int rank) const {
  return proto::peer_name(base::cat("rank-", rank), incarnation_);
}

std::string WorkerProcesses::describe(int rank) const {
  return base::cat("worker ", rank, " (process ", pid(rank),
                   is_stopped(pid(rank)) ? ", stopped by a signal)" : ")");
}

}  // namespace cli
