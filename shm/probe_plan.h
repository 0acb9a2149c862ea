// Which measurements a machine deserves: pure functions of its topology, tried on machines nobody
// here has. shm/probe.h carries them out.
//
// Nodes are logical indices here, as in Topology::nodes; figures name them by OS index. CPUs are
// taken in the order in which ranks take them, physical cores first. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "shm/machine_profile.h"
#include "shm/topology.h"

namespace shm {

enum class ProbeDepth { kFull, kQuick };

struct ProbeOptions {
  ProbeDepth depth = ProbeDepth::kFull;
  uint64_t node_bytes = 0;   // of each kind of page on each node; 0: by caches and free memory
  int ranks = 0;             // of the exchange; 0: one a node with cores, simulated if that is one
  int threads_per_rank = 0;  // 0: every core, less one on the first node for the broker
};

/// Bytes to measure on each node, for each kind of page: several times the caches of a node, at
/// most a tenth of what is free. Error: kNoSpace when there is too little for the options.
base::Result<std::vector<uint64_t>> plan_memory(const Topology& topology, const MachineFacts& facts,
                                                const ProbeOptions& options);

/// Which kinds of pages were had on a node.
struct ObtainedPages {
  bool small = false, huge = false;
};

/// One thread on memory of one node.
struct Stream {
  int cpu = 0;
  size_t memory_node = 0;
};

struct BandwidthCase {
  BandwidthFigure figure;
  std::vector<Stream> streams;  // [threads]
};

struct LatencyCase {
  LatencyFigure figure;
  Stream stream;
};

struct ExchangeCase {
  ExchangeFigure figure;
  bool whole_group = true;  // false: a barrier of the threads of rank 0 only
};

struct ProbePlan {
  std::vector<BandwidthCase> bandwidth;
  std::vector<LatencyCase> latency;
  std::vector<LineFigure> lines;
  std::vector<ExchangeCase> exchanges;
  Placement placement;  // of the ranks of the exchange
};

/// `obtained` is by node. Error: kInvalidArgument when no core is allowed.
base::Result<ProbePlan> plan_probe(const Topology& topology,
                                   const std::vector<ObtainedPages>& obtained, double cpu_quota,
                                   const ProbeOptions& options);

/// The CPUs of a node as ranks take them: one of every core, then the second ones.
std::vector<int> cpus_of(const Node& node);

/// 1, 2, 3, 4, 6, 8, 12 … up to `all`, and `all`.
std::vector<int> thread_counts(int all);

}  // namespace shm
