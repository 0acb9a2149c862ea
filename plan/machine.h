// Machines as the planner sees them: what each NUMA node can hold, read and compute, and what it
// costs to meet.
//
// Plain values, each with its origin: measured by `numoe probe`, given by somebody, or assumed from
// what such machines usually have. GB/s are 1e9 bytes a second. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"
#include "shm/machine_profile.h"
#include "shm/topology.h"

namespace plan {

enum class Origin { kAssumed, kGiven, kMeasured };

/// What some threads of a node read together from its memory.
struct ReadPoint {
  int threads = 1;
  double gb_per_s = 0;
};

/// A place for a rank: a NUMA node with cores, or a part of one that plays a node.
struct MachineNode {
  int os_index = 0;
  int host = 0;                 // index into Machine::hosts
  int package = 0;              // socket
  int threads = 0;              // that compute, one a core
  uint64_t memory_bytes = 0;    // that a rank may fill
  std::vector<ReadPoint> read;  // ascending; at least one
};

struct MachineHost {
  std::string name;
  // To other hosts; 0 where there is only one.
  double link_gbit_per_s = 0;
  double round_trip_us = 0;
};

/// How fast one thread multiplies weights of one type, by the columns that they meet at once.
struct KernelPoint {
  int columns = 1;
  double gmac_per_s = 0;  // all columns together
};
struct KernelSpeed {
  kernels::TensorType type = kernels::TensorType::kF32;
  std::vector<KernelPoint> points;  // ascending; at least one; with few columns from a cache
  double stream_share = 1;          // of the read bandwidth that a product with one column gets
};

/// What else a thread does, in 1e9 a second.
struct ThreadSpeed {
  double attend = 0;           // products of a query with keys, and of weights with values
  double attend_together = 0;  // the same of queries that have their keys in common
  double prepare = 0;          // values that are normed and quantised, the input of a product
  double route = 0;            // scores of experts of which some are chosen
  double sample = 0;           // logits of which one is drawn
};

/// What meeting costs.
struct MeetingSpeed {
  double barrier_ns = 0;       // of the threads of a node
  double gather_ns = 0;        // of all ranks of a host, without bytes
  double gather_gb_per_s = 0;  // at which every thread takes in what was gathered
  double remote_gb_per_s = 0;  // at which a node reads memory of another, with all threads
};

struct Machine {
  std::vector<MachineHost> hosts;
  std::vector<MachineNode> nodes;  // by host, then as ranks take them
  std::vector<KernelSpeed> kernels;
  ThreadSpeed thread;
  MeetingSpeed meeting;
  Origin read_origin = Origin::kAssumed;  // the worst of all nodes
  Origin memory_origin = Origin::kAssumed;
  Origin kernel_origin = Origin::kAssumed;
  Origin meeting_origin = Origin::kAssumed;
  bool simulated = false;          // some nodes are parts of one
  std::vector<std::string> notes;  // what was assumed and why, a sentence each
};

/// What is known of one host.
struct HostFacts {
  std::string name = {};
  shm::Topology topology = {};
  shm::Placement placement = {};  // a rank for each place, in order; may be simulated
  const shm::MachineProfile* profile = nullptr;   // measured on it
  std::vector<double> gb_per_s = {};              // by place; one value: of each; empty: not given
  std::vector<uint64_t> memory_bytes = {};        // the same, that a rank may fill
  double link_gbit_per_s = 0, round_trip_us = 0;  // to other hosts; 0: assumed
  std::string isa = {};                           // "avx512", "avx2"; empty: avx2 is assumed
};

/// One host or several. What is given goes before what was measured, and that before what is
/// assumed. REQUIRES: at least one host, each with a rank.
Machine machine_of(const std::vector<HostFacts>& hosts);

/// What `threads` of the node read together: between points in proportion, beyond the last as that.
double read_gb_per_s(const MachineNode& node, int threads);

/// Time of one thread for one weight that meets so many columns, in nanoseconds; between points in
/// proportion.
double weight_ns(const KernelSpeed& speed, double columns);

/// The speed of that type; where it was not measured, of the one with the most similar bits.
const KernelSpeed& kernel_speed(const Machine& machine, kernels::TensorType type);

/// Takes what a probe measured of the kernels; false if it did not.
bool take_kernels(const shm::MachineProfile& profile, Machine& machine);

/// The fewest threads that read at least `share` (0 … 1) of what all of them do.
int threads_for(const MachineNode& node, double share);

}  // namespace plan
