// Measures a machine: what `numoe probe` reports and planners count with.
//
//   memory of every node, small and huge pages  ->  plan_probe()  ->  rounds over all cases
//
// Cases are sampled in turn, round after round, so that what others do to the machine meanwhile
// falls on all of them; the first round warms up and is dropped. Rounds end when there are enough
// or the time is up. Thread rule: one caller at a time; it starts and ends its own threads.
#pragma once

#include <atomic>
#include <functional>

#include "base/result.h"
#include "shm/machine_profile.h"
#include "shm/probe_plan.h"
#include "shm/topology.h"

namespace shm {

struct ProbeControl {
  /// Set by another thread: the probe returns kCancelled within some milliseconds.
  const std::atomic<bool>& stop;
  /// Called between samples, by the caller's thread: percent of the whole, never falling.
  std::function<void(int percent)> on_progress = [](int) {};
};

/// Everything of the profile but the date. Errors: those of plan_memory(), plan_probe() and
/// run_pinned(); kCancelled.
base::Result<MachineProfile> run_probe(const Topology& topology, const MachineFacts& facts,
                                       const ProbeOptions& options, const ProbeControl& control);

/// What a reader of the profile must know, one sentence each: huge pages not had, memory not where
/// it was asked for, settings that cost speed, nodes slower than others, a machine that was busy.
std::vector<std::string> notes_on(const MachineProfile& profile);

}  // namespace shm
