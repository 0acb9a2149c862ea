// The main loop of a worker process: a channel to the broker, a Worker, a Backend, and the clock.
//
// Everything that a state machine must not know is here. The loop ends when the broker says so,
// when it refuses the worker, or when the group cannot go on. A worker of an instance may outlive
// its broker: it waits for another one, and ends when none comes or when other workers have taken
// its place; of one without, whoever started the process makes sure that it does not outlive its
// parent. Thread rule: the calling thread becomes a compute thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "worker/backend.h"

namespace worker {

struct InstanceOptions {
  std::string directory;  // worker/instance.h
  base::TimeNs orphan_ns = 60'000'000'000;
};

struct WorkerProcessOptions {
  std::string endpoint;      // of the broker
  std::string node_id;       // at most proto::kNodeIdBytesMax bytes
  uint64_t incarnation = 0;  // greater after each start
  std::string program_version;
  RankHostOptions rank;
  std::optional<InstanceOptions> instance = {};
};

/// Returns success after a Shutdown, and when no broker is left. The broker has been told of an
/// error; what came before it could be reached goes to `log`.
base::Status run_worker_process(const WorkerProcessOptions& options, const BackendFactory& factory,
                                const base::Clock& clock, base::Log& log);

}  // namespace worker
