#include <csignal>

#include "base/cat.h"
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/place.h"
#include "worker/worker_process.h"

namespace cli {

base::Status be_worker(const Options& options, const worker::BackendFactory& factory,
                       base::Log& log) {
  worker::WorkerProcessOptions process;
  process.endpoint = options.endpoint;
  process.node_id = base::cat("rank-", options.rank);
  process.incarnation = options.incarnation;
  process.program_version = version();
  process.rank = rank_options(options);
  RETURN_IF_ERROR(use_expert_counts(options, process.rank));
  process.rank.rank = static_cast<int>(options.rank);
  process.rank.rank_count = static_cast<int>(options.ranks);
  process.rank.group_id = options.group;
  process.rank.broker_endpoint = options.endpoint;
  process.rank.arena_directory = options.arena_directory;
  process.rank.os_node = static_cast<int>(options.os_node);
  process.rank.oversubscribed = options.oversubscribed;
  process.rank.named_kv = !options.instance.empty();
  if (!options.instance.empty())
    process.instance = {
        {.directory = options.instance, .orphan_ns = options.orphan_seconds * 1'000'000'000}};
  // Who reads what we say may end before us.
  std::signal(SIGPIPE, SIG_IGN);
  ASSIGN_OR_RETURN(const std::vector<int> given, parse_ids("--cpus", options.cpus, -1));
  process.rank.cpus = still_allowed(given, shm::read_allowed());
  if (process.rank.cpus.size() < given.size())
    log.warning(base::cat("the cpuset has shrunk: rank ", options.rank, " computes with ",
                          process.rank.cpus.size(), " threads instead of ", given.size()));
  if (!options.shares.empty()) {
    ASSIGN_OR_RETURN(const std::vector<int> shares, parse_ids("--shares", options.shares, 1));
    process.rank.shares.assign(shares.begin(), shares.end());
  }
  if (options.rank >= options.ranks)
    return base::Error{base::Code::kInvalidArgument, "--rank must be below --ranks"};
  const base::SteadyClock clock;
  return worker::run_worker_process(process, factory, clock, log);
}

}  // namespace cli
