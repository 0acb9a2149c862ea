#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <optional>
#include <set>
#include <thread>

#include "cli/commands.h"
#include "cli/kernel_probe.h"
#include "cli/probe_report.h"
#include "cli/profile_json.h"
#include "cli/profile_store.h"
#include "cli/progress.h"
#include "shm/arena_dir.h"
#include "shm/file.h"
#include "shm/machine_facts.h"
#include "shm/probe.h"

namespace cli {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  char text[32];
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// The cores of the first node that has some, and what they share.
KernelProbeOptions kernel_options(const kernels::Ops& ops, const shm::Topology& topology,
                                  const shm::MachineFacts& facts, const std::atomic<bool>& stop) {
  KernelProbeOptions options{.ops = ops, .cpus = {}, .stop = stop};
  for (const shm::Node& node : topology.nodes) {
    std::set<int> caches;
    for (const shm::Core& core : node.cores) {
      if (core.efficient && !node.cores.front().efficient) continue;
      options.cpus.push_back(core.cpus.front());
      if (core.last_cache >= 0) caches.insert(core.last_cache);
    }
    if (options.cpus.empty()) continue;
    options.os_node = node.os_index;
    for (const int cache : caches)
      options.cache_bytes += topology.last_cache_bytes[static_cast<size_t>(cache)];
    break;
  }
  if (facts.cpu_quota >= 1 && static_cast<double>(options.cpus.size()) > facts.cpu_quota)
    options.cpus.resize(static_cast<size_t>(facts.cpu_quota));
  return options;
}

/// Memory and exchange, then kernels.
base::Result<shm::MachineProfile> measure_all(const shm::Topology& topology,
                                              const shm::MachineFacts& facts,
                                              const shm::ProbeOptions& options,
                                              const shm::ProbeControl& control) {
  ASSIGN_OR_RETURN(const kernels::Ops* ops, kernels::find_ops("auto"));
  ASSIGN_OR_RETURN(shm::MachineProfile profile, shm::run_probe(topology, facts, options, control));
  KernelProbeOptions kernels = kernel_options(*ops, topology, facts, control.stop);
  kernels.depth = options.depth;
  ASSIGN_OR_RETURN(profile.kernels, probe_kernels(kernels));
  return profile;
}

/// Measures in a thread of its own while this one listens to signals.
base::Result<shm::MachineProfile> measure(Context& context, const shm::Topology& topology,
                                          const shm::MachineFacts& facts) {
  const Options& options = context.options;
  const shm::File ended(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended.is_open()) return shm::system_error("cannot make", "an event descriptor", errno);
  std::atomic<bool> stop{false};
  std::optional<base::Result<shm::MachineProfile>> result;
  std::thread worker([&] {
    Progress progress(stderr, style_for(stderr), "measuring");
    result = measure_all(topology, facts,
                         {.depth = options.quick ? shm::ProbeDepth::kQuick : shm::ProbeDepth::kFull,
                          .node_bytes = static_cast<uint64_t>(options.probe_mib) << 20,
                          .ranks = static_cast<int>(options.nodes),
                          .threads_per_rank = static_cast<int>(options.threads_per_node)},
                         {.stop = stop, .on_progress = [&](int percent) {
                            progress.update(static_cast<uint64_t>(percent), 100, "steps");
                          }});
    const uint64_t one = 1;
    // Cannot fail: the counter is empty.
    if (write(ended.fd(), &one, sizeof one) < 0) return;
  });
  pollfd sources[] = {{context.signals.descriptor(), POLLIN, 0}, {ended.fd(), POLLIN, 0}};
  while (sources[1].revents == 0) {
    if (poll(sources, 2, -1) < 0 && errno != EINTR) break;
    if (context.signals.asked_to_end()) {
      stop.store(true, std::memory_order_relaxed);
      break;
    }
  }
  worker.join();
  if (context.signals.ending_signal() != 0) return context.signals.error();
  return std::move(*result);
}

}  // namespace

base::Status probe(Context& context) {
  const Options& options = context.options;
  // Known to be impossible before half a minute is spent.
  std::string directory;
  if (options.save) {
    ASSIGN_OR_RETURN(directory, state_directory());
    RETURN_IF_ERROR(make_state_directory(directory));
  }
  ASSIGN_OR_RETURN(const shm::Topology topology, shm::read_topology({}));
  shm::MachineFacts facts = shm::read_machine_facts(topology);
  const auto arenas = shm::choose_arena_dir({});
  facts.arena_file_system = arenas.ok() ? arenas->file_system : arenas.error().message;
  ASSIGN_OR_RETURN(shm::MachineProfile profile, measure(context, topology, facts));
  profile.measured_at = utc_now();
  RETURN_IF_ERROR(print(options.json ? profile_to_json(profile) + "\n" : probe_report(profile)));
  if (!options.save) return {};
  ASSIGN_OR_RETURN(const std::string path, save_profile(directory, profile));
  context.log.info("saved as " + path);
  return {};
}

}  // namespace cli
