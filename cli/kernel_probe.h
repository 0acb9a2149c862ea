// How fast one thread of this machine computes: products of every weight type with few and with
// many columns, attention, and the work between products.
//
// The figures that `numoe probe` adds to those of shm/probe.h, which knows no kernels, and with
// which plan/ predicts. Thread rule: one caller; it starts and ends threads of its own.
#pragma once

#include <atomic>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "shm/machine_profile.h"
#include "shm/probe_plan.h"

namespace cli {

struct KernelProbeOptions {
  const kernels::Ops& ops;
  std::vector<int> cpus;     // of one node, that compute at the same time; figures are of one
  int os_node = -1;          // that node
  uint64_t cache_bytes = 0;  // that these cores share
  shm::ProbeDepth depth = shm::ProbeDepth::kFull;
  const std::atomic<bool>& stop;  // set by another thread: kCancelled within a second
};

/// In the order of docs/probe.md. Errors: those of shm::run_pinned(), kCancelled.
base::Result<std::vector<shm::KernelFigure>> probe_kernels(const KernelProbeOptions& options);

}  // namespace cli
